"""Callbacks for training frameworks. Each file imports its framework, so import the one you use."""
