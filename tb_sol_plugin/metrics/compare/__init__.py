"""Compares two sides, each of one or more recordings: how much changed, whether the change is real, and what it is made of."""
