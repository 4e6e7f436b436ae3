"""Defines what a capture, a run, a query and a report are."""
