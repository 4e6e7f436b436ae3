"""Comparisons of ranks."""
