"""Which functions of a file are worth following, told from its text in a fraction of the time of parsing.

A function is a suspect when something in it is written in place that was read before, or that came out of
an op which keeps its result, or that belongs to the object. Most files have none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

from torchsan.check.reading.gradients import GradientSources
from torchsan.check.reading.history import history, indent_at, line_of, loop_around, rest
from torchsan.check.reading.outline import Definition, located, outline_of, without_grad
from torchsan.check.reading.writes import captures_in, dropped_in, ranks_in, renamed_in, shifted_in, writes_in
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
    r"([A-Za-z_]\w*)(?:\[|[ \t]*$|\.(?:view|transpose|permute|squeeze|unsqueeze|narrow|select|detach|data|T|t|"
    r"reshape|flatten|contiguous|to|float|cpu|cuda|double|half|ravel|unflatten|movedim|swapaxes|diagonal|real)\b)"
)
_VIEW_BY_TORCH = re.compile(
    r"torch\.(?:flatten|reshape|squeeze|unsqueeze|transpose|permute|ravel|narrow|select|t|detach)\(([A-Za-z_]\w*)[,)]"
)
_VIEW_OF_PARAMETER = re.compile(
    r"[A-Za-z_][\w.]*\.(?:weight|bias)(?:\[|\.(?:view|transpose|t|reshape|squeeze|unsqueeze)\()"
)
_NUMBER = re.compile(r"-?\d[\d._e]*[ \t]*(?:#|$)")
_IN_PLACE = re.compile(r"inplace ?= ?True")
_BY_POSITION = re.compile(r"(?:LU6?|wish)\(True\)")
_PLAIN_TYPES = frozenset({"int", "float", "str", "bool", "dict", "list"})
_KEYED = ("items(", "keys(", "get(", "pop(", "update(", "append(", "setdefault(", "extend(")
_LOSS = re.compile(r"(?:self\.|F\.|nn\.)?\w*(?:loss|criterion|Loss)\w*\(")
_TENSOR_WORDS = ("torch.", "nn.", "weight", ".data", "Parameter")
# What describes the arguments of a function to its callers.
DESCRIBES = re.compile(r"^\s*(?:Args|Arguments|Parameters|Params|Inputs?|Shape)\s*:?\s*$|:param\b", re.M)
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


@dataclass(slots=True)
class Suspects:
    """Lines of the `def`s to follow, and whether the file as a whole is a program to follow."""

    functions: set[int] = field(default_factory=set)
    whole: bool = False
    outline: list[Definition] = field(default_factory=list)
    everything: bool = False
    # Whether some result may be thrown away.
    dropped: bool = False
    # Whether something gets a second name, and is written to.
    renamed: bool = False
    # Whether elements are moved along inside of one array.
    shifted: bool = False
    # Whether something in it is for programs of several processes.
    ranks: bool = False
    # Whether something is captured, and whether every module is to be looked at as if it were.
    captures: bool = False
    modules: bool = False
    # Whether statements outside of all definitions matter.
    script: bool = False
    # Lines of `def`s that must be parsed, but need not be followed.
    parsed: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        parts = self.dropped, self.renamed, self.shifted, self.ranks, self.captures, self.modules, self.whole
        return self.everything or any(parts) or bool(self.functions)


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
    alone = dropped_in(text)
    trains = ".backward(" in text or "inference_mode" in text
    in_place_layers = _has_sign(text, 0, len(text))
    found.whole = trains or (in_place_layers and "__main__" in text)
    writes = writes_in(text)
    replaced = _replaced(text)
    ranks, captures = ranks_in(text), captures_in(text)
    renamed = renamed_in(text, writes)
    moved = shifted_in(text) if writes else []
    plain = [*alone, *ranks, *captures, *renamed, *moved]
    if not writes and not in_place_layers and not trains and not replaced and not plain:
        return found
    outline = found.outline = outline_of(text)
    found.dropped, found.ranks, found.captures = bool(alone), bool(ranks), bool(captures)
    found.renamed, found.shifted = bool(renamed), bool(moved)
    if plain:
        spots, found.script = located(text, outline, [("", at) for at in plain])
        found.parsed = {d.line for d, _, _ in spots}
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
        asks = possible or argument or sources.reach(definition) or _describes(text, definition)
        if suspicious == "always" or (suspicious and asks):
            selected.setdefault(definition)
    if in_place_layers:
        selected.update({d: None for d in outline if d.kind == "def" and d.owner and _has_inplace(text, d)})
    if trains:
        selected.update({d: None for d in outline if d.kind == "def" and _backward_in(text, d)})
    if replaced:
        selected.update(dict.fromkeys(_replacing(text, outline, replaced)))
    for definition in _callers(text, outline, helpers):
        selected.setdefault(definition)
    found.functions = {d.line for d in selected}
    found.whole = found.whole or ("__main__" in text and bool(writes))
    return found


def _describes(text: str, definition: Definition) -> bool:
    """Whether the documentation of a function, or of a loss, speaks of its arguments: others call it."""
    if definition.owner is not None and "loss" not in definition.owner.name.lower():
        return False
    opened = text.find('"""', definition.start, definition.end)
    return opened >= 0 and DESCRIBES.search(text, opened, text.find('"""', opened + 3, definition.end)) is not None


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
    element, target = target.endswith("[]"), target.removesuffix("[]")
    if target.startswith("self."):
        if f"def {target[5:]}(self" in text or f"{target}()." in rest(text, at):
            # What a method of its own, or of its base, hands out.
            return "always", False
        initial = definition.name == "__init__" and ".data" in rest(text, at)
        return "graded" if not initial and _belongs(text, target[5:]) else "", False
    if "." in target:
        # Of what belongs to an argument only the parameters of a layer are known.
        layer = target.endswith((".weight", ".bias")) or _own_part(text, definition, target, at)
        layer = layer and ".data" not in rest(text, at)
        return "always" if layer and not without_grad(text, definition) else "", False
    binding, used = history(text, target, definition.start, at)
    if not element and _has_keys(text, definition, target):
        return "", False
    sometimes = binding >= 0 and indent_at(text, line_of(text, binding)) > indent_at(text, line_of(text, at))
    if sometimes and _is_argument(text, definition, target):
        # Bound on some paths only: on the others it may be what the caller gave.
        return "always", True
    if f"{target}=torch." in text[definition.start : at]:
        return "always", False
    value = rest(text, binding) if binding >= 0 else ""
    if definition.name == "__init__" and not any(word in value for word in _TENSOR_WORDS):
        # Numbers of channels and strides.
        return "", False
    if value and not _NUMBER.match(value):
        if element and value.startswith("[") and ("(" in value or value.strip() in ("[", "[]")):
            # Tensors in a list.
            return "graded", False
        if value.startswith(_NOT_TENSOR_STARTS) or _NOT_TENSOR_ENDS.search(value) or _INTEGERS.search(value):
            return "", False
        if _LOSS.match(value):
            # No gradient needs the value of a loss.
            return "", False
        if _VIEW_OF_PARAMETER.match(value) and ".data" not in value:
            return "" if without_grad(text, definition) else "always", False
        viewed = _VIEW_OF.match(value) or _VIEW_BY_TORCH.match(value)
        # A write to a view is a write to what it is a view of.
        before = text.rfind("\n", 0, binding)
        inherited = ("", False)
        if viewed is not None and before > definition.start:
            inherited = _suspicious(text, definition, viewed[1], before)
        if inherited[1]:
            return inherited
        if (".expand" in value or not _NEW_MEMORY.match(value)) and (
            _keeps_result(value) or _own_call_keeps(text, value)
        ):
            return "always" if "expand" in value else "graded", binding < 0
        if viewed is not None and viewed[1] != target:
            return inherited
    if _COUNTED.search(rest(text, at)):
        # `n += 1` is mostly a counter.
        return "", False
    if binding >= 0 and without_grad(text, definition):
        return "", False
    if binding < 0 and _is_argument(text, definition, target):
        return "always", True
    if not used:
        used = _reads(text, target, at)
    if not used:
        loop = loop_around(text, definition, max(binding, definition.start), at)
        used = loop is not None and history(text, target, *loop)[1]
    return "graded" if used else "", binding < 0


def _own_part(text: str, definition: Definition, target: str, at: int) -> bool:
    """Whether the root of `model.table` is another name for a part of the object: `model = self.net`."""
    root = target.partition(".")[0]
    return re.search(rf"\n[ \t]+{root} ?= ?self\.\w+[ \t]*(?:#|\n)", text[definition.start : at]) is not None


def _has_keys(text: str, definition: Definition, target: str) -> bool:
    """Whether a name is used as only lists and dictionaries are."""
    at = text.find(f"{target}.", definition.start, definition.end)
    while at >= 0:
        if text.startswith(_KEYED, at + len(target) + 1) and not (text[at - 1].isalnum() or text[at - 1] in "_."):
            return True
        at = text.find(f"{target}.", at + 1, definition.end)
    return target.endswith(("dict", "kwargs", "config", "checkpoint", "cfg"))


def _is_argument(text: str, definition: Definition, target: str) -> bool:
    """Whether a name stands in the brackets of the `def`, other than for a number."""
    opened = text.find("(", definition.start)
    closed = text.find("):", opened), text.find(") ->", opened)
    end = min((c for c in closed if c > 0), default=-1)
    found = re.search(rf"[(,*\s]{re.escape(target)}\s*(?::\s*([\w.\[\]| ]+))?(?=[,=)\s])", text[opened : end + 1])
    return found is not None and (found[1] or "").strip() not in _PLAIN_TYPES


def _reads(text: str, target: str, at: int) -> bool:
    """Whether a line that writes to a name reads it, too, on the right: `x /= x.norm()`."""
    line = rest(text, at)
    _, sign, right = line.partition("= ")
    if not sign:
        _, sign, right = line.partition("_(")
    return re.search(rf"\b{re.escape(target)}\b", right) is not None


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
    if f"class {maker}(" in text or f"def {maker}(" in text:
        return True
    # A class of another file of the tree.
    imported = rf"import [^\n]*\b{maker}\b|^ +{maker},"
    return not space and maker[:1].isupper() and re.search(imported, text, re.M) is not None


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
