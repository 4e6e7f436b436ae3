"""Operators of a sampled iteration: which were called, what they cost, whose they are."""
