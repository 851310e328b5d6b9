"""Mixture of experts: each token goes through the top_k of many small networks that its router chooses."""
