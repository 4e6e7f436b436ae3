"""Roofline and what-if: how far work is from the limits of a device."""
