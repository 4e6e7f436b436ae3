"""What was counted, analysed and written: console, TensorBoard, W&B and the SOL log."""
