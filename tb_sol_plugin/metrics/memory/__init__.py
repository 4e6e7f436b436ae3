"""Computes memory over time: replay of a profiler's memory events, curves of every source, categories and lifetimes of allocations.

`replay` pairs allocations with frees and lists what is allocated at a time; `categories` finds what asked for an allocation and what it
is for; `allocations` lists them, by operator too; `attribution` attributes what is in use at a moment; `leaks` looks for growth;
`curves` brings events, snapshots, timelines and records of a program into one shape with a bounded number of points.
"""
