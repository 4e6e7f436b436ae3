"""Comparisons of the ranks of a job.

`job` sorts the recordings of a run into ranks, `comparison` compares columns of numbers within groups of ranks, `figure` draws one value
per rank, and `sections` has the tables, tiles, notices and marks that every page of ranks shows.
"""
