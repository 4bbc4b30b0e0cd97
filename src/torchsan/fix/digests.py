"""From a tensor to the few numbers that stand for it."""

from __future__ import annotations

import math

import torch

from torchsan.fix.trial import Digest

ENTRIES = 512
LARGE = 1_000_000


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
        chosen = flat[:: math.ceil(flat.numel() / entries)] if flat.numel() > entries else flat
        chosen = chosen.to("cpu", torch.float64)
        if flat.numel() > LARGE and flat.is_floating_point():
            # Without a copy of a whole dataset in double precision.
            norm, total = torch.linalg.vector_norm(flat, dtype=torch.float64), flat.sum(dtype=torch.float64)
        else:
            wide = flat.to("cpu", torch.float64)
            norm, total = wide.norm(), wide.sum()
        return Digest(tuple(plain.shape), dtype, float(norm), float(total), tuple(chosen.tolist()))
