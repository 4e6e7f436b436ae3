"""LAYER 0: numpy and pandas only; knows nothing of profilers."""
