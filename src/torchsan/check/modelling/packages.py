"""Layers of common packages that are made of torch's own: what matters is the activation at their end."""

from __future__ import annotations

import ast
from typing import Any

from torchsan.check.modelling.names import words
from torchsan.check.modelling.values import Layer, Library, Mapping, Plain

# Functions and classes that hand on the module, or function, that they are given.
PASS_ON = words(
    """torch.nn.utils.weight_norm torch.nn.utils.spectral_norm torch.nn.utils.parametrizations.weight_norm
    torch.nn.utils.parametrizations.spectral_norm torch.nn.utils.parametrizations.orthogonal torch.compile
    torch.jit.script torch.nn.DataParallel torch.nn.parallel.DataParallel
    torch.nn.parallel.DistributedDataParallel functools.wraps accelerate.Accelerator.prepare"""
)
# They end with a ReLU unless told otherwise.
_OF_TORCHVISION = words("Conv2dNormActivation Conv3dNormActivation ConvNormActivation")


def with_activation(name: str, kwargs: dict[str, Any]) -> tuple[str, bool] | None:
    """The activation at the end of a package's layer and whether it works in place; None when that is not known."""
    last = name.rpartition(".")[2]
    if last in ("ConvModule", "DepthwiseSeparableConvModule") and not name.startswith("torch."):
        given = kwargs.get("act_cfg")
        if given is None:
            return "ReLU", True
        if isinstance(given, Plain) and given.known and given.value is None:
            return "", False
        kind = given.items.get("type") if isinstance(given, Mapping) else None
        if isinstance(kind, Plain) and kind.known and isinstance(kind.value, str):
            return kind.value, True
        return None
    if name.startswith("torchvision.ops.") and last in _OF_TORCHVISION:
        given = kwargs.get("activation_layer")
        if given is None:
            return "ReLU", True
        return (given.name.rpartition(".")[2], True) if isinstance(given, Library) else None
    return None


def package_layer(name: str, kwargs: dict[str, Any], node: ast.Call, construct: Any) -> Layer | None:
    """A convolution with its activation, as torch would build it."""
    found = with_activation(name, kwargs)
    if found is None:
        return None
    activation, inplace = found
    layer = Layer("Sequential", node)
    layer.children.append(construct("Conv2d", [], {}, node))
    if activation:
        layer.children.append(construct(activation, [], {"inplace": Plain(inplace, True)}, node))
    return layer
