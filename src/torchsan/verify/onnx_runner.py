"""Run an ONNX model with onnxruntime on the tensors of a call, in their order."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree


class OnnxRunner:
    """Quiet about its errors: they are raised, and torchsan tells of them."""

    def __init__(self, model: bytes | str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.quiet = onnxruntime.RunOptions()
        self.quiet.log_severity_level = 4
        self.names = [given.name for given in self.session.get_inputs()]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if len(tensors) != len(self.names):
            raise RuntimeError(f"the ONNX model takes {len(self.names)} tensors, {len(tensors)} were given")
        given = {n: t.detach().cpu().contiguous().numpy() for n, t in zip(self.names, tensors, strict=True)}
        results = self.session.run(None, given, self.quiet)
        return tuple(torch.from_numpy(r) if hasattr(r, "shape") and r.shape else torch.tensor(r) for r in results)
