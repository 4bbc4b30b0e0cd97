"""`torchsan fix --memory`: the edits that people recommend for saving memory, each tried and measured.

`advice` makes the edits, `trying` runs them.
"""
