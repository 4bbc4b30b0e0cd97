"""The model of torch: tensors and their memory, ops, layers, optimizers. It knows nothing of Python's syntax tree
beyond the places that it notes.

May import: reading (what names mean); torchsan.effects.
"""

ROOMS = ("reading",)
