"""Every number that decides whether a finding about memory is worth a word. Sizes in bytes, shares from 0 to 1."""

from __future__ import annotations

from typing import Final

LEAST_SHARE: Final = 0.01
"""Of the memory in use at the peak: a finding that frees less is left out (a leak is told whatever its size)."""
GAP_SHARE: Final = 0.2
"""Reserved at most beyond in use at most, of reserved: from here on it is far above."""
GAP_BYTES: Final = 64 << 20
"""The same in bytes: the allocator keeps some of it in any case."""
ONE_MODULE: Final = 0.33
"""Of the peak, held by one module: from here on it is worth a word."""
FEWEST_MODULES: Final = 3
"""Modules that hold memory at the peak; of fewer, one always holds most."""
UNSHARDED: Final = 0.9
"""Numbers in a state of the optimizer over parameters of this rank: from here on it is not divided."""
OPTIMIZER_SHARE: Final = 0.05
"""Of the peak: state of the optimizer worth dividing."""
PLACED_SHARE: Final = 0.01
"""Of the peak: an embedding or a head on the wrong stage."""
GRADIENTS_SHARE: Final = 0.02
"""Of the peak: gradients that live on between steps."""
GRADIENT_STEPS: Final = 0.8
"""Part of the steps that begin with gradients: fewer are the middle of an accumulation."""
ACTIVATION_SHARE: Final = 0.2
"""Of the peak, that activations must hold before recomputing them is worth a word."""
LAYER_SHARE: Final = 0.3
"""Of the activations, that a class of layers must hold to be the one to recompute."""
FEWEST_LAYERS: Final = 2
"""Instances of such a class: recomputing one single module frees nothing while it runs."""
PINNED_BYTES: Final = 64 << 20
"""Pinned memory per step from which on it matters whether copies use it."""
PINNED_USED: Final = 0.5
"""Part of it that copies to the device read: from here on it is used."""
LEAK_STEPS: Final = 1000
LEAK_MATTERS: Final = 0.01
"""Of the peak, that a leak adds in LEAK_STEPS steps: with less it stands on its own page alone."""
