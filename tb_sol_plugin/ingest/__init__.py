"""LAYER 2: bytes to Capture, one file per format, chosen by content."""
