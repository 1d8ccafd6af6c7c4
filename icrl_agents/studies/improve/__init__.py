"""MetaWorld control: noisy scripted policies improved by advantages from an in-context critic."""
