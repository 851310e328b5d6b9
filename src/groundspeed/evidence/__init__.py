"""What is kept: facts only, in files that are safe to open."""
