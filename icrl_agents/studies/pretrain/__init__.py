"""Pretraining: whether the constructions emerge from random weights, and how far what emerges generalises."""
