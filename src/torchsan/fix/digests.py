"""From a tensor to the few numbers that stand for it."""

from __future__ import annotations

import math

import torch

from torchsan.fix.trial import Digest

ENTRIES = 512


def digest(tensor: torch.Tensor, entries: int = ENTRIES) -> Digest:
    with torch.no_grad():
        # Of a tensor that is spread over ranks, this rank's part: the whole would take a collective.
        plain = getattr(tensor, "_local_tensor", tensor).detach()
        dtype = str(plain.dtype).removeprefix("torch.")
        if plain.layout == torch.strided and plain.numel() and not plain.untyped_storage().nbytes():
            # Freed behind its back, as FSDP does with gathered parameters: there is nothing to read.
            return Digest(tuple(plain.shape), dtype, 0.0, 0.0, ())
        if plain.layout != torch.strided:
            plain = plain.to_dense()
        if plain.is_quantized:
            plain = plain.dequantize()
        flat = plain.reshape(-1)
        if flat.is_complex():
            flat = torch.view_as_real(flat.resolve_conj()).reshape(-1)
        flat = flat.to("cpu", torch.float64)
        chosen = flat[:: math.ceil(flat.numel() / entries)] if flat.numel() > entries else flat
        return Digest(tuple(plain.shape), dtype, float(flat.norm()), float(flat.sum()), tuple(chosen.tolist()))
