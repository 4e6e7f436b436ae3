"""LAYER 3: arithmetic that analyses share: DataFrames in, DataFrames out."""
