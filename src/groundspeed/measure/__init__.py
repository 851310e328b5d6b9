"""Timing: a runner that starts fresh worker processes and records what they report."""
