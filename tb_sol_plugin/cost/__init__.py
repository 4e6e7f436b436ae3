"""LAYER 1: FLOP and byte models per operator kind and roofline arithmetic; pure functions over shapes and dtypes."""
