"""The findings court: situations whose truth is known from their construction, and the verdict of every rule on them.

    python -m benchmarks.court           # precision and recall per rule
    python -m benchmarks.court FILE...   # whether the findings of recordings keep the laws

A situation is a function that makes a small recording; its decorator states which findings must appear, with what they save. Anything else
that is reported is a false conviction. `waiting`, `work`, `products`, `copying` and `memory` hold the guilty ones by subject,
`innocent` and `innocent_data` the look-alikes. `laws` holds what is true of the findings of any recording.
"""
