"""Knows the peaks of devices: table, device files, expressions, matching. `limits.device_for` is the way in."""
