"""Which functions of a file are worth following, told from its text in a fraction of the time of parsing.

A function is a suspect when something in it is written in place that was read before, or that came out of
an op which keeps its result, or that belongs to the object. Most files have none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

from torchsan.check.reading.gradients import GradientSources
from torchsan.check.reading.history import history, loop_around, rest
from torchsan.check.reading.outline import Definition, located, outline_of, without_grad
from torchsan.check.reading.writes import writes_in
from torchsan.effects import lookup, names

_CALL = re.compile(r"([A-Za-z_][\w.]*(?:\[\w+\])?)\(")
_CALLED = re.compile(r"(\w{3,})\(")
_DOTTED = re.compile(r"[\w.]+")
_NOT_TENSOR_STARTS = (
    *("{", "[", '"', "'", "dict(", "list(", "defaultdict", "len(", "int(", "float(", "str(", "()", "np."),
    *("copy.deepcopy(", "config", "OrderedDict", "range(", "max(", "min(", "set(", "tuple(", "None"),
)
_NOT_TENSOR_ENDS = re.compile(
    r"(?:\.shape|\.shape\[[^\]]*\]|\.item\(\)|\.tolist\(\)|\.size\([^)]*\)|\.split\([\"'][^)]*\)|_size|_len|_dim)"
    r"[ \t]*(?:#.*)?$"
)
_INTEGERS = re.compile(
    r"dtype=torch\.(?:u?int|long|bool)|torch\.arange\((?!.*float)|\.argmax\(|\.long\(\)$|\.bool\(\)$"
)
_NEW_MEMORY = re.compile(r"torch\.(?:zeros|ones|empty|full|rand|randn)(?:_like)?\(")
_VIEW_OF = re.compile(
    r"([A-Za-z_]\w*)(?:\[|\.(?:view|transpose|permute|squeeze|unsqueeze|narrow|select|detach|data|T)\b)"
)
_NUMBER = re.compile(r"-?\d[\d._e]*[ \t]*(?:#|$)")
_IN_PLACE = re.compile(r"inplace ?= ?True")
_BY_POSITION = re.compile(r"(?:LU6?|wish)\(True\)")
_GRADIENT_SIGNS = (
    "nn.",
    "Parameter(",
    "requires_grad",
    "inference_mode",
    ".expand(",
    "=torch.",
    ".backward(",
)
_TENSOR_WORDS = ("torch.", "nn.", "weight", ".data", "Parameter")
_COUNTED = re.compile(r"[-+*/]= [-+]?\d+[ \t]*(?:#|$)")
_PARAMETER = re.compile(r"self\.(\w+) ?= ?(?:torch\.)?(?:nn\.)?Parameter\(")
_NOT_COMPUTING = (
    "__init__",
    "get_",
    "set_",
    "reset_",
    "_init",
    "init_",
    "load_",
    "group_",
    "no_weight",
    "_make",
    "make_",
)
_PART_CALLED = re.compile(r"self\.[\w.]+(?:\[[^\n\]]*\])?\(\w|in self\.\w")
_QUIET_FUNCTIONS = re.compile(
    r"(?:_?init_weights|reset_parameters|_?init_\w*|trunc_normal|_no_grad\w*|load_\w*|convert_\w*|fuse\w*)$"
)


@dataclass(slots=True)
class Suspects:
    """Lines of the `def`s to follow, and whether the file as a whole is a program to follow."""

    functions: set[int] = field(default_factory=set)
    whole: bool = False
    outline: list[Definition] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.whole or bool(self.functions)


@cache
def _keeping() -> frozenset[str]:
    """Functions whose result is needed again, or whose results are several views or overlap."""
    kept = {
        n.rpartition(".")[2].rstrip("_")
        for n in names()
        if (r := lookup(n)) is not None and ("out0" in r.needs or r.view == "multi")
    }
    return frozenset(kept | {"expand", "expand_as", "apply", "requires_grad_", "Parameter"})


def _keeps_result(value: str) -> bool:
    if "**" in value or "requires_grad=True" in value:
        return True
    return any(called in _keeping() for called in _CALLED.findall(value))


def suspects(text: str, *, possible: bool = False) -> Suspects:
    """The functions to follow; with `possible` also those in which nothing surely asks for a gradient."""
    found = Suspects()
    if "torch" not in text:
        return found
    if not possible and not any(sign in text for sign in _GRADIENT_SIGNS):
        return found
    trains = ".backward(" in text or "inference_mode" in text
    in_place_layers = _has_sign(text, 0, len(text))
    found.whole = trains or (in_place_layers and "__main__" in text)
    writes = writes_in(text)
    replaced = _replaced(text)
    if not writes and not in_place_layers and not trains and not replaced:
        return found
    outline = found.outline = outline_of(text)
    placed, outside = located(text, outline, writes)
    # A write outside of all definitions: the file is a script.
    found.whole = found.whole or outside or (bool(writes) and _applies(text))
    sources = GradientSources(text, outline)
    selected: dict[Definition, None] = {}
    helpers: set[str] = set()
    for definition, target, at in placed:
        suspicious, argument = _suspicious(text, definition, target, at)
        if argument:
            helpers.add(definition.name)
        if suspicious == "always" or (suspicious and (possible or sources.reach(definition))):
            selected.setdefault(definition)
    if in_place_layers:
        selected.update({d: None for d in outline if d.kind == "def" and d.owner and _has_inplace(text, d)})
    if trains:
        selected.update({d: None for d in outline if d.kind == "def" and _backward_in(text, d)})
    if replaced:
        selected.update(dict.fromkeys(_replacing(text, outline, replaced)))
    for definition in _callers(text, outline, helpers):
        if possible or sources.reach(definition):
            selected.setdefault(definition)
    found.functions = {d.line for d in selected}
    found.whole = found.whole or ("__main__" in text and bool(writes))
    return found


def _replaced(text: str) -> list[int]:
    """Lines such as `self.w = self.w * 0.5`, in which an attribute that holds a parameter gets a tensor."""
    if "Parameter(" not in text:
        return []
    found = []
    for name in {m[1] for m in _PARAMETER.finditer(text)}:
        at = text.find(f"self.{name} = ")
        while at >= 0:
            if text.startswith((f"self.{name} ", f"self.{name}.", "torch.", "F."), at + len(name) + 8):
                found.append(text.rfind("\n", 0, at) + 1)
            at = text.find(f"self.{name} = ", at + 8)
    return found


def _replacing(text: str, outline: list[Definition], spots: list[int]) -> list[Definition]:
    placed = located(text, outline, [("", at) for at in spots])[0]
    return [d for d, _, _ in placed if d.name not in ("__init__", "reset_parameters")]


def _applies(text: str) -> bool:
    """Whether a script calls `net.apply(function)` at the left margin."""
    at = text.find(".apply(")
    while at >= 0:
        start = text.rfind("\n", 0, at) + 1
        if text[start:at].isidentifier():
            return True
        at = text.find(".apply(", at + 7)
    return False


def _backward_in(text: str, definition: Definition) -> bool:
    return text.find(".backward(", definition.start, definition.end) >= 0


def _suspicious(text: str, definition: Definition, target: str, at: int) -> tuple[str, bool]:
    """When a write may do harm here ("always", "graded" or never), and whether it is to a caller's tensor."""
    if _QUIET_FUNCTIONS.match(definition.name) or without_grad(text, definition):
        return "", False
    if target.startswith("self."):
        initial = definition.name == "__init__" and ".data" in rest(text, at)
        return "graded" if not initial and _belongs(text, target[5:]) else "", False
    if "." in target:
        # Of what belongs to an argument nothing is known.
        return "", False
    binding, used = history(text, target, definition.start, at)
    if f"{target}=torch." in text[definition.start : at]:
        return "always", False
    value = rest(text, binding) if binding >= 0 else ""
    if definition.name == "__init__" and not any(word in value for word in _TENSOR_WORDS):
        # Numbers of channels and strides.
        return "", False
    if value and not _NUMBER.match(value):
        if value.startswith(_NOT_TENSOR_STARTS) or _NOT_TENSOR_ENDS.search(value) or _INTEGERS.search(value):
            return "", False
        if not _NEW_MEMORY.match(value) and (_keeps_result(value) or _own_call_keeps(text, value)):
            return "always" if "expand" in value else "graded", False
        viewed = _VIEW_OF.match(value)
        if viewed is not None and viewed[1] != target:
            # A write to a view is a write to what it is a view of.
            return _suspicious(text, definition, viewed[1], binding)
    if _COUNTED.search(rest(text, at)):
        # `n += 1` is mostly a counter.
        return "", False
    if not used:
        loop = loop_around(text, definition, max(binding, definition.start), at)
        used = loop is not None and history(text, target, *loop)[1]
    return "graded" if used else "", binding < 0


@cache
def _layers_that_keep() -> frozenset[str]:
    kept = {n[3:] for n in names() if n.startswith("nn.") and (r := lookup(n)) and "out0" in r.needs}
    return frozenset(kept | {"Sequential", "ModuleList", "ModuleDict"})


def _own_call_keeps(text: str, value: str) -> bool:
    """Whether the value comes from a part of the object, or a function of the file, that may keep its result."""
    for match in _CALL.finditer(value):
        called = match.group(1)
        if not called.startswith("self."):
            if f"\ndef {called}(" in text or f"\nclass {called}(" in text:
                return True
            continue
        attribute = called[5:].partition(".")[0].partition("[")[0]
        at = text.find(f"self.{attribute} = ")
        if at < 0:
            if f"def {attribute}(" in text:
                return True
            continue
        made = _DOTTED.match(text, at + len(attribute) + 8)
        if made is not None and _maker_keeps(text, made.group()):
            return True
    return False


def _maker_keeps(text: str, maker: str) -> bool:
    space, _, last = maker.rpartition(".")
    if space in ("nn", "torch.nn"):
        return last in _layers_that_keep()
    return f"class {maker}(" in text or f"def {maker}(" in text


def _belongs(text: str, attribute: str) -> bool:
    """Whether `self.attribute` is a parameter or a buffer, or belongs to a layer."""
    first, _, below = attribute.partition(".")
    return (
        bool(below)
        or f"self.{first} = nn.Parameter" in text
        or f"self.{first} = torch.nn.Parameter" in text
        or f"self.{first} = Parameter" in text
        or f'register_buffer("{first}"' in text
        or f"register_buffer('{first}'" in text
    )


def _has_inplace(text: str, definition: Definition) -> bool:
    owner = definition.owner
    while owner is not None and owner.owner is not None:
        owner = owner.owner
    holder = owner or definition
    if definition.name.startswith(_NOT_COMPUTING) or not _PART_CALLED.search(text, definition.start, definition.end):
        return False
    return _has_sign(text, holder.start, holder.end)


def _has_sign(text: str, start: int, end: int) -> bool:
    """Whether an in-place layer is made here."""
    if text.find("inplace", start, end) >= 0 and _IN_PLACE.search(text, start, end):
        return True
    return text.find("(True)", start, end) >= 0 and _BY_POSITION.search(text, start, end) is not None


def _callers(text: str, outline: list[Definition], helpers: set[str]) -> list[Definition]:
    """The functions of the file that call one of the helpers by name."""
    names = sorted(h for h in helpers if h not in ("__init__", "forward", "__call__") and not h.endswith("_"))
    if not names or len(names) > 20:
        return []
    pattern = re.compile(r"\b(?:" + "|".join(map(re.escape, names)) + r")\(")
    return [d for d in outline if d.kind == "def" and pattern.search(text, d.start + 8, d.end)]
