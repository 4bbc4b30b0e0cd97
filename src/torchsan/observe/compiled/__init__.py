"""Compiled regions: what `torch.compile` knows of the lines inside them."""
