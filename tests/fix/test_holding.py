"""Who holds what is looked for among all objects, whatever their classes say of themselves."""

from __future__ import annotations

import gc

import torch

from torchsan.fix import holding


class Own:
    pass


def test_classes_are_not_asked():
    def refuse(self, *args):
        raise SystemError("asked")

    meta = type("Meta", (type,), dict.fromkeys(("__hash__", "__eq__", "__bool__", "__getattribute__"), refuse))
    refusing = meta("Refusing", (), {})
    own, layer = Own(), torch.nn.Linear(1, 1)
    objects = [object.__new__(refusing), own, layer, [], refusing]
    found = [id(value) for value in holding._leading_on(objects)]
    assert {id(own), id(layer)} <= set(found)
    assert id(objects[3]) not in found
    # Other tests look at all objects that there are.
    del objects, refusing, meta
    gc.collect()
