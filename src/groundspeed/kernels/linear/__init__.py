"""Linear layers: products of rows with a matrix, and the operations right before and after them."""
