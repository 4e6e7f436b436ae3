"""The overview and its findings."""
