"""Measures memory copies: records, groups, link bandwidth, overlap with kernels, and the host time that they block."""
