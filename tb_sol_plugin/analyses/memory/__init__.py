"""Memory: what is in use, who holds it, what was expected, what fits."""
