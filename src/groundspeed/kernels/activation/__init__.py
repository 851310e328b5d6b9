"""Activations as separate operations."""
