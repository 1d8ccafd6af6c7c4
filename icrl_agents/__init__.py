"""In-context evaluator agents."""
