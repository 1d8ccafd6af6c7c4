"""Cross-domain transfer: one fixed set of weights evaluates policies in many MetaWorld domains."""
