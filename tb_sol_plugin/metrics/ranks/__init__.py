"""Compares the ranks of a job.

`comparison` sorts the recordings of a run into ranks and compares columns of numbers within groups of ranks; `sections` has the tables,
tiles, notices, marks and figures that every page about ranks shows.
"""
