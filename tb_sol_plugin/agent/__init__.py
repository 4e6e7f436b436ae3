"""Answers agents: small answers about recordings of a logdir, and the server of the Model Context Protocol over them."""
