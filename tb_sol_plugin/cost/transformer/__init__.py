"""Predicts the device memory of a transformer in training: closed forms over its sizes and its parallel layout."""
