"""Reads SOL logs: lines to records, records to columns, columns to the tables of a Capture."""
