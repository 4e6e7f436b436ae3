"""Sums time and work over trees of modules and phases."""
