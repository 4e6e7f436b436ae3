"""Reads traces of the PyTorch profiler: events are scanned, decoded into columns, linked and laid out as tables."""
