"""The built-in training scripts: plain DDP code that a reader can learn from."""
