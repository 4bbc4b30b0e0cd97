"""Turn what happened on the abstract machine into the events that rules judge.

May import: reading (places and words), modelling (values); torchsan.model.
"""

ROOMS = ("reading", "modelling")
