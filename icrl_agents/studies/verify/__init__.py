"""Verification: every theorem and claim checked on this machine, one row each."""
