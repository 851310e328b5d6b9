"""Norms of rows."""
