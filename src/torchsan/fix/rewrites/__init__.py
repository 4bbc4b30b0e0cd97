"""Rewrites by name, as the rules' FIXES ask for them. Each takes a spot and yields (title, edits)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from torchsan.fix.candidates import Spot
from torchsan.fix.rewrites import (
    branches,
    captures,
    copies,
    graphs,
    kept_graphs,
    layers,
    leaves,
    loops,
    order,
    outside,
    ranks,
    saves,
    scripting,
    state,
    stores,
    weights,
    writes,
)
from torchsan.fix.source import Edit

Rewrite = Callable[[Spot], Iterator[tuple[str, Iterable[Edit]]]]

REWRITES: dict[str, Rewrite] = {
    "out_of_place": writes.out_of_place,
    "fresh_result": writes.fresh_result,
    "clone_before_write": writes.clone_before_write,
    "inplace_false": layers.inplace_false,
    "clone_argument": layers.clone_argument,
    "clone_saved": saves.clone_saved,
    "clone_saved_result": saves.clone_saved_result,
    "leaf_write": leaves.leaf_write,
    "under_no_grad": leaves.under_no_grad,
    "local_value": leaves.local_value,
    "copy_into": leaves.copy_into,
    "grad_mode_view": leaves.grad_mode_view,
    "no_grad_for_inference": leaves.no_grad_for_inference,
    "step_later": order.step_later,
    "forward_later": order.forward_later,
    "forward_again": order.forward_again,
    "rebuild": order.rebuild,
    "copied_weights": weights.copied_weights,
    "clear_cache": weights.clear_cache,
    "returned_twin": writes.returned_twin,
    "detach_carried": graphs.detach_carried,
    "detach_stored": kept_graphs.detach_stored,
    "keep_graph": graphs.keep_graph,
    "retain_grad": graphs.retain_grad,
    "kept_copy": stores.kept_copy,
    "bound_copy": stores.bound_copy,
    "single_views": stores.single_views,
    "clone_operand": stores.clone_operand,
    "own_memory": copies.own_memory,
    "array_copy": copies.array_copy,
    "fresh_default": copies.fresh_default,
    "clone_global": copies.clone_global,
    "plain_size": captures.plain_size,
    "tensor_by_sizes": captures.tensor_by_sizes,
    "like_input": captures.like_input,
    "filled": captures.filled,
    "into_memory": captures.into_memory,
    "where_branch": branches.where_branch,
    "cond_branch": branches.cond_branch,
    "skip_while_capturing": branches.skip_while_capturing,
    "while_loop": loops.while_loop,
    "masked_loop": loops.masked_loop,
    "whole_dimension": loops.whole_dimension,
    "as_buffer": state.as_buffer,
    "plain_number": outside.plain_number,
    "by_torch": outside.by_torch,
    "drawn_by_torch": outside.drawn_by_torch,
    "in_eval_mode": outside.in_eval_mode,
    "capture_copy": outside.capture_copy,
    "scripted": scripting.scripted,
    "without_memo": captures.without_memo,
    **{
        rewrite.__name__: rewrite
        for rewrite in (
            ranks.wait_first,
            ranks.wait_at_once,
            ranks.contiguous_and_back,
            ranks.clone_for_collective,
            ranks.without_buffer_broadcast,
            ranks.optimizer_after_sharding,
            ranks.load_before_wrapping,
        )
    },
}
