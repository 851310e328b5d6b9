"""How it is timed: a runner that starts fresh worker processes and keeps what they report."""
