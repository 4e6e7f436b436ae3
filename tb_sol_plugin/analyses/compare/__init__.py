"""Analyses that set whole runs against each other."""
