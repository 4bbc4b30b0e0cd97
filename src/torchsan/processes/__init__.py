"""Several processes, one run: each writes its own records as things happen, and one report is made of them.

A run has a folder. Every process that is followed has a journal in it, a file of JSON lines that is only ever appended
to, so that what was written before a crash, a kill or a hang is there afterwards. Nothing here imports torch.
"""
