"""Turns what was measured into findings, by rules."""
