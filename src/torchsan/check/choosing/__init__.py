"""Which files are checked, with which settings, and which findings are already known.

May import: nothing of the other rooms; torchsan.model, torchsan.rules, torchsan.errors.
"""

ROOMS: tuple[str, ...] = ()
