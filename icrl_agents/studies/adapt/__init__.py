"""Adaptation: a bank mixed for each context, against the best single kernel in hindsight and one of a source domain."""
