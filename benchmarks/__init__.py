"""Measurements: `python -m benchmarks FILE...` and `python -m benchmarks.multiply TRACE COPIES OUT`."""
