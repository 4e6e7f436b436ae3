"""Computes where the time of a step goes: attribution, breakdown, waterfall, kernels, operators."""
