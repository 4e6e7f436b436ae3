"""Measures what goodput needs of a training loop: step times, gradient statistics, hints of a scheduler."""
