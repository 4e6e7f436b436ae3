"""Copies of memory: the records, their groups, the link they use, what hides them, whether they hold the host, and what is wrong."""
