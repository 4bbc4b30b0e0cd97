"""Which functions of a file are worth following, told from its text in a fraction of the time of parsing.

A function is a suspect when something in it is written in place that was read before, or that came out of
an op which keeps its result, or that belongs to the object. Most files have none.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cache

from torchsan.effects import lookup, names

_WRITE_SIGN = re.compile(r"[-+*/@|&%_\]](?:= |\(| = )")
_CALL = re.compile(r"([A-Za-z_][\w.]*(?:\[\w+\])?)\(")
_DOTTED = re.compile(r"[\w.]+")
_TARGET = re.compile(r"[\w.]+$")
_HARMLESS = (".shape", ".size", ".device", ".dtype", ".dim", ".ndim", ".numel", ".append", ".items", ".keys")
_READS_BEFORE = (
    *("+", "-", "len(", "isinstance(", "range(", "zeros_like(", "ones_like(", "empty_like(", "if", "not"),
    *("return", "print(", "enumerate(", "list(", "tuple(", "append("),
)
_READS_AFTER = (" is", " + ", " - ", " ==", " in", " !=", " if", " an", " or")
_NOT_TENSOR_STARTS = (
    "0\n",
    "1\n",
    "0 ",
    "1 ",
    "-1",
    "0.0\n",
    "{",
    "[",
    '"',
    "'",
    "dict(",
    "list(",
    "defaultdict",
    "len(",
    "int(",
    "str(",
    "()",
    "copy.deepcopy(",
    "config",
    "np.",
    "OrderedDict",
)
_SEVERAL = (",",)
_IN_PLACE_SIGNS = ("inplace=True", "LU(True)", "LU6(True)", "wish(True)", "inplace = True")
_GRADIENT_SIGNS = (
    "nn.",
    "Parameter(",
    "requires_grad",
    "inference_mode",
    ".expand(",
    "=torch.",
    ".backward(",
)
_PLAIN_VALUE = re.compile(r"(?:[fbr]?[\"']|len\(|\[|str\(|int\(|\($|\([^\n]*,\)$)", re.M)
_COUNTED = re.compile(r"[-+*/]= [-+]?\d+[ \t]*(?:#|$)")
_QUIET_FUNCTIONS = re.compile(
    r"(?:_?init_weights|reset_parameters|_?init_\w*|trunc_normal|_no_grad\w*|load_\w*|convert_\w*|fuse\w*)$"
)


@dataclass(slots=True, eq=False)
class Definition:
    """A `def` or `class`: where its text starts and ends."""

    indent: int
    kind: str
    name: str
    start: int
    line: int
    end: int = 0
    owner: Definition | None = None


@dataclass(slots=True)
class Suspects:
    """Lines of the `def`s to follow, and whether the file as a whole is a program to follow."""

    functions: set[int] = field(default_factory=set)
    whole: bool = False
    outline: list[Definition] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.whole or bool(self.functions)


@cache
def writing_methods() -> frozenset[str]:
    """Names of in-place tensor methods."""
    found = {n for n in names() if n.endswith("_") and not n.startswith("_") and (r := lookup(n)) and r.inplace}
    return frozenset(found - {"requires_grad_", "detach_", "share_memory_", "resize_", "retain_grad_"})


@cache
def _keeps_result() -> re.Pattern[str]:
    """Calls whose result is needed again, or whose results are several views or overlap."""
    kept = {
        n.rpartition(".")[2].rstrip("_")
        for n in names()
        if (r := lookup(n)) is not None and ("out0" in r.needs or r.view == "multi")
    }
    kept |= {"expand", "expand_as", "apply", "requires_grad_", "Parameter"}
    words = sorted((w for w in kept if w.isidentifier() and len(w) > 2), key=len, reverse=True)
    return re.compile(r"\b(?:" + "|".join(words) + r")\(|requires_grad=True|\*\*")


def suspects(text: str, *, possible: bool = False) -> Suspects:
    """The functions to follow; with `possible` also those in which nothing surely asks for a gradient."""
    found = Suspects()
    if "torch" not in text:
        return found
    if not possible and not any(sign in text for sign in _GRADIENT_SIGNS):
        return found
    trains = ".backward(" in text or "inference_mode" in text
    in_place_layers = any(sign in text for sign in _IN_PLACE_SIGNS)
    found.whole = trains or (in_place_layers and "__main__" in text)
    writes = _writes(text)
    if not writes and not in_place_layers and not trains:
        return found
    outline = found.outline = _outline(text)
    if any(not text[at : at + 1].isspace() and text[at : at + 1] for _, at in writes):
        # A write at the outermost level: the file is a script.
        found.whole = True
    selected: dict[Definition, None] = {}
    helpers: set[str] = set()
    for definition, target, at in _located(text, outline, writes):
        suspicious, argument = _suspicious(text, definition, target, at)
        if argument:
            helpers.add(definition.name)
        if suspicious and (possible or _has_gradients(text, definition)):
            selected.setdefault(definition)
    if in_place_layers:
        selected.update({d: None for d in outline if d.kind == "def" and d.owner and _has_inplace(text, d)})
    if trains:
        selected.update({d: None for d in outline if d.kind == "def" and _backward_in(text, d)})
    for definition in _callers(text, outline, helpers):
        if possible or _has_gradients(text, definition):
            selected.setdefault(definition)
    found.functions = {d.line for d in selected}
    found.whole = found.whole or ("__main__" in text and bool(writes))
    return found


def _has_gradients(text: str, definition: Definition) -> bool:
    """Whether anything in the function, or in the class around it, surely asks for a gradient."""
    while definition.owner is not None:
        definition = definition.owner
    return any(text.find(sign, definition.start, definition.end) >= 0 for sign in _GRADIENT_SIGNS)


def _backward_in(text: str, definition: Definition) -> bool:
    return text.find(".backward(", definition.start, definition.end) >= 0


def _writes(text: str) -> list[tuple[str, int]]:
    """Targets of in-place writes, each with the start of its line."""
    found: list[tuple[str, int]] = []
    methods = writing_methods()
    for match in _WRITE_SIGN.finditer(text):
        at = match.start()
        start = text.rfind("\n", 0, at) + 1
        sign = text[at]
        if sign == "_":
            target = _method_target(text[start:at], methods)
        elif sign == "]":
            target = _item_target(text[start:at])
        elif text[at + 1] == "=" and not _PLAIN_VALUE.match(text, at + 3):
            target = _root(text[start:at].strip())
        else:
            continue
        if target:
            found.append((target, start))
    at = text.find(".data = ")
    while at >= 0:
        start = text.rfind("\n", 0, at) + 1
        target = _root(text[start:at])
        if target:
            found.append((target, start))
        at = text.find(".data = ", at + 8)
    return found


def _method_target(head: str, methods: frozenset[str]) -> str:
    """Of `x.mul_(`: x. Functions such as nn.init.normal_ are no methods."""
    dot = head.rfind(".")
    if dot < 0 or head[dot + 1 :] + "_" not in methods or head.endswith("init", 0, dot):
        return ""
    return _root(head[:dot])


def _item_target(head: str) -> str:
    """Of `x[i] =`: x, unless the key is a string."""
    bracket = head.find("[")
    if bracket <= 0 or head[bracket + 1 : bracket + 2] in ('"', "'", "f") or ":" in head[:bracket]:
        return ""
    target = head[:bracket].strip()
    return target if target.replace(".", "").isidentifier() else ""


def _root(expression: str) -> str:
    """The name at the root of `x[0].data`, `self.weight`; empty when there is none."""
    expression = expression.rpartition("=")[2].strip()
    expression = expression.removesuffix(".data")
    while expression.endswith("]"):
        depth = 0
        for index in range(len(expression) - 1, -1, -1):
            depth += (expression[index] == "]") - (expression[index] == "[")
            if depth == 0:
                expression = expression[:index]
                break
        else:
            return ""
    match = _TARGET.search(expression)
    return match.group() if match else ""


def _outline(text: str) -> list[Definition]:
    """Functions and classes by position, found by their keyword at the start of a line."""
    spots: list[tuple[int, int, str, int]] = []
    for word in ("def ", "class "):
        at = text.find(word)
        while at >= 0:
            start = text.rfind("\n", 0, at) + 1
            head = text[start:at]
            if not head.strip() or head.strip() == "async":
                spots.append((start, len(head) - len(head.lstrip()), word[:-1], at + len(word)))
            at = text.find(word, at + 4)
    spots.sort()
    outline: list[Definition] = []
    stack: list[Definition] = []
    line, seen = 1, 0
    for start, indent, kind, name_at in spots:
        line += text.count("\n", seen, start)
        seen = start
        while stack and stack[-1].indent >= indent:
            stack.pop().end = start
        name = text[name_at : text.find("(", name_at)].partition(":")[0].strip()
        made = Definition(indent, kind, name, start, line, len(text))
        made.owner = stack[-1] if stack else None
        stack.append(made)
        outline.append(made)
    return outline


def _located(text: str, outline: list[Definition], writes: list[tuple[str, int]]) -> list[tuple[Definition, str, int]]:
    starts = [d.start for d in outline]
    found = []
    for target, at in writes:
        index = bisect_right(starts, at) - 1
        inside = outline[index] if index >= 0 else None
        outermost: Definition | None = None
        while inside is not None:
            # Nested functions run inside the outer one.
            if inside.kind == "def" and at < inside.end:
                outermost = inside
            inside = inside.owner
        if outermost is not None:
            found.append((outermost, target, at))
    return found


def _suspicious(text: str, definition: Definition, target: str, at: int) -> tuple[bool, bool]:
    """Whether a write may do harm here, and whether it is to an argument, and so may do harm in a caller."""
    if _QUIET_FUNCTIONS.match(definition.name) or _without_grad(text, definition):
        return False, False
    if target.startswith("self."):
        initial = definition.name == "__init__" and ".data" in _rest(text, at)
        return not initial and _belongs(text, target[5:]), False
    if "." in target:
        # Of what belongs to an argument nothing is known.
        return False, False
    binding, used = _history(text, target, definition.start, at)
    if f"{target}=torch." in text[definition.start : at]:
        return True, False
    if binding >= 0:
        end = text.find("\n", binding)
        value = text[binding:end]
        if value.startswith(_NOT_TENSOR_STARTS):
            return False, False
        if value.startswith(_SEVERAL) or _keeps_result().search(value) or _own_call_keeps(text, value):
            return True, False
    if _COUNTED.search(_rest(text, at)):
        # `n += 1` is mostly a counter.
        return False, False
    if not used:
        loop = _loop_around(text, definition, max(binding, definition.start), at)
        used = loop is not None and _history(text, target, *loop)[1]
    return used, binding < 0


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


def _history(text: str, name: str, start: int, end: int) -> tuple[int, bool]:
    """Where the value that `name` has at `end` is bound (after the `=`), and whether it was read since."""
    binding, used = -1, False
    size = len(name)
    at = text.find(name, start, end)
    while at >= 0:
        after = at + size
        before = text[at - 1]
        follows = text[after : after + 3]
        if not (before.isalnum() or before in "_.\"'" or follows[:1].isalnum() or follows[:1] == "_"):
            head = text[text.rfind("\n", start, at) + 1 : at].strip()
            if follows.startswith(" = ") and (not head or head.endswith(",")):
                binding, used = (after + 3 if not head else at), False
            elif (follows.startswith((", ", ",)")) and not head.count("(") and " = " in _rest(text, after)) or (
                head.startswith(("for ", "async for ")) and " in " not in head and "(" not in head[4:]
            ):
                binding, used = at, False
            elif follows.startswith("=") or (follows[:1] == " " and follows[2:] == "=" and follows[1] in "+-*/"):
                pass
            elif not head and follows[:1] in ("[", "."):
                # The target of a write; what is read on the right of it comes next.
                pass
            elif head.startswith("#"):
                pass
            elif not (follows[:1] == "." and text.startswith(_HARMLESS, after)) and before != "#":
                harmless = head.startswith("def ") or follows.startswith((": ", "=")) or _saves_nothing(head, follows)
                used = used or not harmless
        at = text.find(name, after, end)
    return binding, used


def _saves_nothing(head: str, follows: str) -> bool:
    """Whether a name between these two is read in a way that keeps no tensor: a sum, a test, a length."""
    if follows[:2] in (" *", " /", " @") or follows[:1] in (".", "["):
        return False
    return head.endswith(_READS_BEFORE) or (follows in _READS_AFTER and not head.endswith(("*", "/", "@", ".")))


def _rest(text: str, at: int) -> str:
    return text[at : text.find("\n", at)]


def _loop_around(text: str, definition: Definition, since: int, at: int) -> tuple[int, int] | None:
    """The text of the outermost loop around a write that starts after `since`."""
    indent = _indent_at(text, at)
    found = None
    end = at
    while end > since:
        start = text.rfind("\n", 0, end - 1) + 1
        if start <= since:
            break
        width = _indent_at(text, start)
        if width < indent and text[start + width : start + width + 1].strip():
            indent = width
            if text.startswith(("for ", "while ", "async for "), start + width):
                found = (start, width)
        end = start
    if found is None:
        return None
    stop = at
    while True:
        stop = text.find("\n", stop) + 1
        if stop <= 0 or stop >= definition.end:
            return found[0], definition.end
        width = _indent_at(text, stop)
        if width <= found[1] and text[stop + width : stop + width + 1].strip():
            return found[0], stop


def _indent_at(text: str, start: int) -> int:
    at = start
    while text[at : at + 1] == " ":
        at += 1
    return at - start


def _without_grad(text: str, definition: Definition) -> bool:
    above = text[max(0, definition.start - 60) : definition.start]
    decorator = above.rstrip().rpartition("\n")[2]
    return "no_grad" in decorator or "inference_mode" in decorator


def _has_inplace(text: str, definition: Definition) -> bool:
    owner = definition.owner
    while owner is not None and owner.owner is not None:
        owner = owner.owner
    holder = owner or definition
    return definition.name != "__init__" and any(
        text.find(sign, holder.start, holder.end) >= 0 for sign in _IN_PLACE_SIGNS
    )


def _callers(text: str, outline: list[Definition], helpers: set[str]) -> list[Definition]:
    """The functions of the file that call one of the helpers by name."""
    names = sorted(h for h in helpers if h not in ("__init__", "forward", "__call__") and not h.endswith("_"))
    if not names or len(names) > 20:
        return []
    pattern = re.compile(r"\b(?:" + "|".join(map(re.escape, names)) + r")\(")
    return [d for d in outline if d.kind == "def" and pattern.search(text, d.start + 8, d.end)]
