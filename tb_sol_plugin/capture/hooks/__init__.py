"""Hooks on the modules of a model in sampled iterations, and closed forms for work that operators do not show."""
