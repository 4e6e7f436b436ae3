"""Allocator snapshots and memory timelines of PyTorch."""
