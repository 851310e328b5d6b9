"""Norms of rows: RMSNorm and LayerNorm."""
