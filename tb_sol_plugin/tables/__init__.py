"""Handles arrays: numpy and pandas only; knows nothing of profilers."""
