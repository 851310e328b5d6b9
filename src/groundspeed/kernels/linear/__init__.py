"""Products of rows with a matrix, as a linear layer has it, and what comes right before and behind it."""
