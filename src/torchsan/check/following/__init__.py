"""Follow a program along its paths, over the model of torch, and gather what is told on the way.

May import: reading, modelling, telling; torchsan.effects.
"""

ROOMS = ("reading", "modelling", "telling")
