"""Analyses of many ranks: clocks, collectives, groups, stragglers."""
