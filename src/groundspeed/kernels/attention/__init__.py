"""Attention: softmax(QKᵀ·scale)V."""
