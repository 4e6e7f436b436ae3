"""Compares work with its limit: who did how much, how long it took, how long it would take. `work.work` is the entry."""
