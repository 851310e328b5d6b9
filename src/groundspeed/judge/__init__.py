"""Pure functions from a record to figures, verdicts and claims."""
