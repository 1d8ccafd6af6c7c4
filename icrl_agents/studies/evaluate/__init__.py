"""Evaluation of a policy in any Gymnasium environment: values in context against returns of held-out episodes."""
