"""Memory copies: pages of what was moved, how fast, and what waited for it."""
