"""Scaling: step time, goodput and cost at other batch sizes and replica counts."""
