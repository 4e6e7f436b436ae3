"""What was counted, analyzed and written: console, TensorBoard, W&B and the SOL log."""
