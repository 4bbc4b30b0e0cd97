"""A value changed in place while a name of a caller, or a second name beside it, still stands for the old one."""

from __future__ import annotations

from collections.abc import Iterator

from torchsan.model.events import Event
from torchsan.observe.evidence.arguments import callers_tensor
from torchsan.observe.evidence.container_copies import read_as_of_old
from torchsan.observe.evidence.handed_out import (
    kept_before,
    refilled,
    returned_before,
    summed_into_the_first,
    through_a_dictionary,
    through_a_shallow_copy,
)
from torchsan.observe.evidence.scene import Writing
from torchsan.observe.evidence.second_names import second_name, stored_back
from torchsan.observe.evidence.used_values import used_for_its_value


def events_of(writing: Writing) -> Iterator[Event]:
    """What is to be told if the write changes values; the first is enough."""
    if writing.file is None or writing.node is None or writing.extent is None:
        return
    yield from second_name(writing)
    yield from stored_back(writing)
    yield from used_for_its_value(writing)
    yield from callers_tensor(writing)
    yield from returned_before(writing)
    yield from kept_before(writing)
    yield from summed_into_the_first(writing)
    yield from refilled(writing)
    yield from through_a_shallow_copy(writing)
    yield from read_as_of_old(writing)
    yield from through_a_dictionary(writing)
