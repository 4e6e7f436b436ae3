"""Scripts for those who change the sources; no part of the package."""
