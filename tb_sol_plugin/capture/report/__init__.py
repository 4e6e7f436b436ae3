"""Analyzes and writes what was counted: console, TensorBoard, W&B and the SOL log."""
