"""The ceilings of machines: table, device files, expressions, matching. `limits.device_for` is the way in."""
