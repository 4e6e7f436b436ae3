"""Rules that turn what was measured into findings."""
