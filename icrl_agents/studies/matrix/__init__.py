"""The transfer matrix: pretrained on one domain's high-noise tasks, frozen, and evaluated on all domains."""
