"""Writes sentences and facts that several reports share."""
