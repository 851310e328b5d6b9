"""Activations by themselves."""
