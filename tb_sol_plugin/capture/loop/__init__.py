"""Follows the iterations of a training loop: schedule, phases, times, traces, and the header that describes the process."""
