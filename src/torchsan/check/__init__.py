"""The static engine: hazards from source alone. Needs the standard library only, no torch.

A file's way: `runner` takes the files that `choosing` found, asks `cache`, and hands the rest to `analyse`, which lets
`reading` choose what is worth a look, `following` go through it over the `modelling` of torch, `telling` put it into
events, and the rules judge. `facts` is what rules are given.

Each room's `__init__` says which other rooms it may import; a test holds them to it.
"""
