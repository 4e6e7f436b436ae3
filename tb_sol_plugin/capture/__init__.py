"""SIDE: SOL tracking inside a training loop: work, phases and times of sampled steps, written beside the run's traces.

Needs torch and the standard library; importing it loads neither torch nor the cost models.
"""
