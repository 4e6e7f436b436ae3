"""What a transformer in training is expected to hold in device memory: closed forms over its sizes and its parallel layout."""
