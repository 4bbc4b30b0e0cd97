"""From `FILE.py:factory` on the command line to a model with example inputs."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchsan.errors import UsageError
from torchsan.verify.frames import raised_places
from torchsan.verify.subject import one_line, seed_everything

_LOAD_FILE = """\
import importlib.util, sys
sys.path.insert(0, {folder!r})
spec = importlib.util.spec_from_file_location({name!r}, {path!r})
subject = sys.modules[{name!r}] = importlib.util.module_from_spec(spec)
{seeds}
spec.loader.exec_module(subject)"""
_LOAD_MODULE = """\
{seeds}
import importlib
subject = importlib.import_module({name!r})"""
_MAKE = """\
{seeds}
made = {factory}
model, args = made[0], tuple(made[1]) if isinstance(made[1], (tuple, list)) else (made[1],)
kwargs = made[2] if len(made) > 2 and isinstance(made[2], dict) else {{}}"""
_OTHERS = """\
others = [tuple(o) if isinstance(o, (tuple, list)) else (o,) for o in {given}]
others = [torch.utils._pytree.tree_leaves((o, kwargs)) for o in others]"""
_GIVEN = """\
{seeds}
model = {factory}
given = eval({args!r}, {{**vars(subject), "torch": torch}})
args, kwargs = given if isinstance(given, tuple) else (given,), {{}}"""


@dataclass(frozen=True)
class Made:
    """What a factory gave."""

    model: Any
    args: Any
    kwargs: dict[str, Any]
    more: list[Any]
    code: str


def load(target: str, args_text: str | None, seed: int) -> Made:
    """The model, its inputs, and the code that makes them."""
    where, colon, name = target.rpartition(":")
    if not colon or not where or not name:
        raise UsageError(f"{target!r} does not name a factory: write FILE.py:factory or package.module:factory")
    seeds = f"torch.manual_seed({seed}); random.seed({seed}); numpy.random.seed({seed})"
    seed_everything(seed)
    module, code = _module(where, seeds)
    thing = _named(module, name, where)
    seed_everything(seed)
    called = isinstance(thing, type) or (callable(thing) and not isinstance(thing, torch.nn.Module))
    expression = f"subject.{name}()" if called else f"subject.{name}"
    made = _call(thing, name) if called else thing
    if args_text is not None:
        model = made[0] if isinstance(made, tuple) and made else made
        if isinstance(made, tuple):
            expression += "[0]"
        code += "\n" + _GIVEN.format(seeds=seeds, factory=expression, args=args_text)
        return Made(model, _evaluated(args_text, module), {}, [], code)
    model, args, kwargs = _unpacked(made, name)
    code += "\n" + _MAKE.format(seeds=seeds, factory=expression)
    more = _more(args, made[2]) if len(made) > 2 and not isinstance(made[2], dict) else []
    if more:
        code += "\n" + _OTHERS.format(given="[made[2]]" if more[0] is made[2] else "made[2]")
    return Made(model, args, kwargs, more, code)


def _more(args: Any, third: Any) -> list[Any]:
    """The arguments of other calls: one call's, or a list of several."""
    example = pytree.tree_structure(args)
    if pytree.tree_structure(third) == example:
        return [third]
    return list(third) if isinstance(third, list) else []


def _module(where: str, seeds: str) -> tuple[ModuleType, str]:
    if where.endswith(".py") or os.sep in where or os.path.exists(where):
        return _from_file(where, seeds)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name and (where == error.name or where.startswith(error.name + ".")):
            raise UsageError(f"there is no module {where!r}") from None
        raise UsageError(_raised(f"importing {where}", error)) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(_raised(f"importing {where}", error)) from None
    return module, _LOAD_MODULE.format(name=where, seeds=seeds)


def _from_file(where: str, seeds: str) -> tuple[ModuleType, str]:
    path = os.path.abspath(where)
    if not os.path.isfile(path):
        raise UsageError(f"there is no file {where}")
    folder = os.path.dirname(path)
    name = os.path.splitext(os.path.basename(path))[0].replace("-", "_").replace(".", "_")
    if name in sys.modules:
        name = f"subject_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{where} is not a Python file")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(_raised(f"importing {where}", error)) from None
    return module, _LOAD_FILE.format(folder=folder, name=name, path=path, seeds=seeds)


def _named(module: ModuleType, name: str, where: str) -> Any:
    thing: Any = module
    for part in name.split("."):
        if not hasattr(thing, part):
            near = difflib.get_close_matches(part, [n for n in vars(thing) if not n.startswith("_")], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"{where} has no {name!r}{hint}")
        thing = getattr(thing, part)
    return thing


def _call(thing: Any, name: str) -> Any:
    try:
        return thing()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(_raised(f"{name}()", error)) from None


def _raised(what: str, error: BaseException) -> str:
    places = raised_places(error)
    where = f" at {places[0]}" if places else ""
    return f"{what} raised {type(error).__name__}{where}: {one_line(error)}"


def _evaluated(text: str, module: ModuleType) -> Any:
    try:
        value = eval(text, {**vars(module), "torch": torch})
    except Exception as error:
        raise UsageError(f"--args {text!r} raised {type(error).__name__}: {one_line(error)}") from None
    return value if isinstance(value, tuple) else (value,)


def _unpacked(made: Any, name: str) -> tuple[Any, Any, dict[str, Any]]:
    if isinstance(made, torch.nn.Module):
        raise UsageError(
            f'{name} gives a model without inputs: return (model, args), or pass --args "torch.randn(2, 3)"'
        )
    if not isinstance(made, tuple | list) or len(made) < 2:
        wanted = "(model, args), (model, args, kwargs) or (model, args, more inputs)"
        raise UsageError(f"{name}() must return {wanted}, not {type(made).__name__}")
    model, args = made[0], made[1]
    if not callable(model):
        raise UsageError(f"{name}() must return a model first, not {type(model).__name__}")
    kwargs = made[2] if len(made) > 2 and isinstance(made[2], dict) else {}
    return model, args, kwargs
