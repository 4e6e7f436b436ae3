"""Memory over time: replay of a profiler's memory events, curves of every source in one model, owners and lifetimes of allocations.

`replay` pairs allocations with frees and gives what lives when; `owners` says whose an event is; `operators` sums per operator;
`curves` brings events, snapshots, timelines and records of a recorder into one shape with a bounded number of points.
"""
