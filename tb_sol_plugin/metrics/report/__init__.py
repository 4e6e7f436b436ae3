"""Sentences and facts that several reports share."""
