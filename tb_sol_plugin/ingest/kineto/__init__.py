"""Traces of the PyTorch profiler: events scanned, decoded into columns, linked and laid out as tables."""
