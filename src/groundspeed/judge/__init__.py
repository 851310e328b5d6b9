"""What the evidence means: pure functions from a record to figures, verdicts and claims."""
