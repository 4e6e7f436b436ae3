"""Reads allocator snapshots and memory timelines of PyTorch."""
