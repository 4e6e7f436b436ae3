"""FLOP and byte models, a file per kind of operator."""
