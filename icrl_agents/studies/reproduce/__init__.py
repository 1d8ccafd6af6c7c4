"""Reproduction: a finished run computed once more, and its rows compared."""
