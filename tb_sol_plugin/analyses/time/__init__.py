"""Where time goes: devices, steps, iterations, phases, modules, operators, kernels."""
