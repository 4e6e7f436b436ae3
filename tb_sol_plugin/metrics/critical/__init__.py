"""Arithmetic of the critical path: the graph of a recording, its exact replay, what holds each step, what a change would bring."""
