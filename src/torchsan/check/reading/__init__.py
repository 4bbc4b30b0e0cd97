"""Read a file: its text cheaply, to see what is worth following, then its tree and what its names mean.

May import: nothing of the other rooms; torchsan.model, torchsan.effects.
"""

ROOMS: tuple[str, ...] = ()
