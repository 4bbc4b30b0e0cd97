"""What a capture of a module would freeze: its forward is read with one question, what becomes a Python value.

May import: reading (trees and names), modelling (names of torch); torchsan.effects, torchsan.model.
"""

ROOMS = ("reading", "modelling")
