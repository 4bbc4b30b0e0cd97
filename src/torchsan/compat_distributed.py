"""Every private API of torch.distributed that we lean on, and what happens where it is missing.

- `torch._C._distributed_c10d.ProcessGroup` and `Work`, the classes through which Python's collectives go. The
  functions of `torch.distributed` are never replaced: compilers and `P2POp` compare their identity. Without the
  classes collectives are not watched.
- `torch.distributed._functional_collectives.AsyncCollectiveTensor`, what functional collectives return before anybody
  has waited for them: without it a result that is thrown away is not told.
- `torch.distributed.utils._sync_module_states`, for trials of fixes only: without it replicas that differ from the
  start cannot be made equal, and edits that do so are not proved.
- `DistributedDataParallel._sync_buffers`, before each forward: without it DDP's writes to buffers are not seen.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

try:
    from torch._C import _distributed_c10d as _c10d

    ProcessGroup: Any = _c10d.ProcessGroup
    Work: Any = _c10d.Work
except ImportError:  # a build of torch without torch.distributed
    ProcessGroup = Work = None

FUNCTIONAL = "torch.distributed._functional_collectives"

# Methods of a group whose first argument is written, and those whose second is only read.
IN_PLACE = ("broadcast", "allreduce", "allreduce_coalesced", "reduce", "recv", "recv_anysource")
INTO = (
    *("allgather", "allgather_coalesced", "all_gather_single", "_allgather_base", "all_gather_single_coalesced"),
    *("allgather_into_tensor_coalesced", "gather", "scatter", "reduce_scatter", "reduce_scatter_single"),
    *("_reduce_scatter_base", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
    *("all_to_all_single", "alltoall_base", "alltoall"),
)
READING = ("send",)
WITHOUT_TENSORS = ("barrier",)
COLLECTIVES = (*IN_PLACE, *INTO, *READING, *WITHOUT_TENSORS)

# What people call them.
PUBLIC_NAMES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "all_gather_single": "all_gather_into_tensor",
    "all_gather_single_coalesced": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
    "alltoall_base": "all_to_all_single",
    "alltoall": "all_to_all",
    "recv_anysource": "recv",
}


def available() -> bool:
    return ProcessGroup is not None


def ddp_class() -> Any:
    return torch.nn.parallel.DistributedDataParallel


def ddp_files() -> frozenset[str]:
    """Where DDP's own code lies."""
    if not available():
        return frozenset()
    return frozenset({sys.modules[ddp_class().__module__].__file__ or ""})


def awaited_tensor_class() -> Any:
    """The class of a functional collective's result; None where it was not loaded or does not exist."""
    functional = sys.modules.get(FUNCTIONAL)
    return getattr(functional, "AsyncCollectiveTensor", None)


def make_equal(ddp: Any) -> None:
    """Copy rank 0's parameters and buffers to all, as DDP does when it is built; nothing where torch has no such."""
    from torch.distributed import utils

    sync = getattr(utils, "_sync_module_states", None)
    if sync is not None:
        sync(
            module=ddp.module,
            process_group=ddp.process_group,
            broadcast_bucket_size=ddp.broadcast_bucket_size,
            src=0,
            params_and_buffers_to_ignore=ddp.parameters_to_ignore,
            broadcast_buffers=ddp.broadcast_buffers,
        )


def sends_buffers(ddp: Any) -> bool:
    """Is this the rank whose buffers DDP sends to all before a forward? False where it may be another one."""
    usual = not ddp._join_config.enable and not hasattr(ddp, "buffer_hook")
    return usual and bool(torch.distributed.get_rank(ddp.process_group) == 0)


def is_joining(ddp: Any) -> bool:
    """Is it inside `with Join([ddp])`?"""
    return bool(getattr(getattr(ddp, "_join_config", None), "enable", False))


def group_name(group: Any) -> str:
    try:
        return str(group.group_name)
    except Exception:
        return ""


def members(group: Any) -> list[int]:
    """The ranks of a group; empty where torch does not tell."""
    try:
        return list(torch.distributed.get_process_group_ranks(group))
    except Exception:
        return []


def world() -> tuple[int, int]:
    """This process's rank and the number of all; (0, 1) outside of a group."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
