"""LAYER 3: logdir to Runs: scan, cache, load."""
