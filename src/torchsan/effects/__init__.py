"""What each torch op does, as data: what its gradient needs, what it aliases, writes, draws, reads out.

The tables are made by `python -m torchsan.effects.probe` and loaded without torch.
"""

from torchsan.effects.table import OpEffects, differing_versions, installed_torch, lookup, names, table_version

__all__ = ["OpEffects", "differing_versions", "installed_torch", "lookup", "names", "table_version"]
