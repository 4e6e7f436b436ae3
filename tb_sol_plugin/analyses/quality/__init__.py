"""What is wrong or missing in a recording."""
