"""The iterations of a training loop: schedule, phases, times, traces, and what a session knows of its process."""
