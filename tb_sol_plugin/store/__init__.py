"""Finds the recordings of a logdir, reads them in worker processes, and keeps them in a cache."""
