"""From a file's text to facts: choose where to start, follow paths, gather what they show."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from torchsan.check.facts import Fact
from torchsan.check.following.argument_kinds import used_as_containers, used_as_tensors
from torchsan.check.following.carried import Run, carried
from torchsan.check.following.dropped import dropped_results
from torchsan.check.following.evaluation import waits_for_a_caller
from torchsan.check.following.interpreter import BUDGET, BUDGET_ALONE, Interpreter
from torchsan.check.following.machine import CallCutShort, PathEnded
from torchsan.check.following.oracle import paths
from torchsan.check.following.owned import OwnedWrites
from torchsan.check.following.ranks import rank_facts
from torchsan.check.following.second_names import second_names
from torchsan.check.following.shifted import shifted
from torchsan.check.following.wanted import asked_for
from torchsan.check.modelling.values import (
    Class,
    Function,
    Grad,
    Instance,
    Library,
    Plain,
    Sequence,
    Storage,
    Tensor,
    tensors_in,
)
from torchsan.check.reading.prefilter import Suspects
from torchsan.check.reading.program import FunctionInfo, Program
from torchsan.check.reading.project import Project, project_of
from torchsan.check.telling.teller import Teller
from torchsan.model import Place
from torchsan.model.events import GradientCut

Root = Callable[[Interpreter], Iterable[Tensor]]
PATHS_WHOLE, PATHS_ALONE = 10, 4
# A program in which nothing walks backward has less to show.
PATHS_UNTRAINED = 5
# Statements followed on all paths from one function, and through a whole program.
BUDGET_OF_PATHS, BUDGET_OF_PROGRAM = 250, 2 * BUDGET
BUDGETS = {PATHS_ALONE: BUDGET_OF_PATHS, PATHS_UNTRAINED: BUDGET // 8, PATHS_WHOLE: BUDGET_OF_PROGRAM}
_SKIP_ROOTS = frozenset({"__repr__", "__len__", "__str__", "extra_repr"})
_IS_TENSOR = re.compile(r"\b(?:Tensor|tensor|(?:Float|Long|Bool|Int|Half|Double)Tensor)\b")
_NO_TENSOR = re.compile(
    r"\b(?:[Ll]ist|[Tt]uple|[Dd]ict|Sequence|Iterable|Iterator|Callable|Mapping|[Ss]et|Any|ndarray|int|float|str|bool|"
    r"Union|PackedSequence|NestedTensor|SparseTensor)\b"
)
_NOT_TENSORS = frozenset({"int", "float", "str", "bool", "dict", "list", "List", "Dict", "Callable", "Path"})


def facts_of(program: Program, chosen: Suspects | None = None) -> list[Fact]:
    """All facts of a file, each once, surer ones first; of the chosen functions, or of all."""
    found: dict[tuple[object, ...], Fact] = {}
    project = project_of(program.path)
    if project is not None:
        project.start()
    for root, most in roots_of(program, chosen):
        for fact in _follow(program, root, most, project):
            if fact.at.path != program.path:
                # What another file does wrong is told when that file is checked.
                continue
            known = found.get(fact.key)
            if known is None or (known.certainty == "possible" and fact.certainty != "possible"):
                found[fact.key] = fact
    if chosen is None or chosen.dropped:
        for fact in dropped_results(program):
            found.setdefault(fact.key, fact)
    if chosen is None or chosen.renamed:
        for fact in second_names(program):
            found.setdefault(fact.key, fact)
    if chosen is None or chosen.shifted:
        for fact in shifted(program):
            found.setdefault(fact.key, fact)
    if chosen is None or chosen.ranks:
        for fact in rank_facts(program):
            found.setdefault(fact.key, fact)
    return sorted(found.values(), key=lambda f: (f.at.line, f.at.column))


def _follow(program: Program, root: Root, most: int, project: Project | None) -> list[Fact]:
    facts: list[Fact] = []
    touched = most > PATHS_ALONE
    left = BUDGETS[most]
    owned, function = OwnedWrites(), None
    walked: set[ast.AST] = set()
    runs: list[Run] = []
    for oracle in paths(most):
        if left <= 0:
            break
        interpreter = Interpreter(program, oracle, project)
        started = interpreter.left
        try:
            results = root(interpreter)
            # Without a backward in sight, what leaves the function is what backward will start from.
            kept = interpreter.machine.kept if interpreter.lazy else []
            interpreter.machine.backward([*results, *kept], None, keep=True)
            if not oracle.once:
                runs.append(Run(oracle, interpreter.machine))
        except (PathEnded, CallCutShort):
            pass
        except RecursionError:
            break
        finally:
            owned.note(interpreter.machine.owned)
            function = interpreter.root
            interpreter.forget()
        left -= min(started, BUDGET_ALONE if interpreter.lazy else started) - interpreter.left
        facts += interpreter.machine.facts
        walked |= interpreter.machine.walked
        touched = touched or interpreter.machine.touched or bool(interpreter.machine.facts or oracle.interesting)
        if not oracle.default and not touched and not oracle.flipped:
            break
    facts = [carried(fact, function, program, project, runs) for fact in facts]
    if function is not None:
        facts += owned.facts(function, program, project, Teller(program))
    return [_on_all_paths(fact, {program.place(node) for node in walked}) for fact in facts] if walked else facts


def _on_all_paths(fact: Fact, walked: set[Place]) -> Fact:
    """A backward without a graph on one path, and with one on another: which path is real is not known."""
    event = fact.event
    cut = isinstance(event, GradientCut) and event.form == "no-graph" and event.needed is not None
    return replace(fact, certainty="possible") if cut and event.needed.place in walked else fact  # type: ignore[union-attr]


def roots_of(program: Program, chosen: Suspects | None) -> list[tuple[Root, int]]:
    """Where to start, and how many paths to follow from there."""
    roots: list[tuple[Root, int]] = []
    if chosen is None or chosen.whole:
        trains = ".backward(" in program.text or "autograd.grad(" in program.text
        roots.append((_whole_file, PATHS_WHOLE if trains else PATHS_UNTRAINED))
    for node in program.tree.body:
        if isinstance(node, ast.FunctionDef):
            if chosen is None or node.lineno in chosen.functions:
                roots.append((_function_root(node.name), PATHS_ALONE))
        elif isinstance(node, ast.ClassDef):
            for item in node.body:
                wanted = chosen is None or getattr(item, "lineno", 0) in chosen.functions
                if isinstance(item, ast.FunctionDef) and wanted and item.name not in _SKIP_ROOTS:
                    roots.append((_method_root(node.name, item.name), PATHS_ALONE))
    return roots


def _whole_file(interpreter: Interpreter) -> Iterable[Tensor]:
    interpreter.run_block(interpreter.program.tree.body, interpreter.globals)
    return ()


def _define(interpreter: Interpreter) -> None:
    """Let the functions, classes and constants of the file be found, without running the rest."""
    interpreter.lazy, interpreter.left = True, BUDGET_ALONE
    interpreter.machine.alone = interpreter.machine.tell.alone = True


def _function_root(name: str) -> Root:
    def run(interpreter: Interpreter) -> Iterable[Tensor]:
        _define(interpreter)
        function = interpreter.find_global(name)
        if not isinstance(function, Function):
            return ()
        return _call_alone(interpreter, function)

    return run


def _method_root(owner: str, name: str) -> Root:
    def run(interpreter: Interpreter) -> Iterable[Tensor]:
        _define(interpreter)
        cls = interpreter.find_global(owner)
        if not isinstance(cls, Class):
            return ()
        made = interpreter.new_instance(cls)
        start = interpreter.find_method(cls, "__init__")
        if start is not None:
            made.start = interpreter.start_scope(made, start, [], _arguments(interpreter, start.info, config=True))
        info = cls.info.methods.get(name)
        if info is None:
            # Another class of the same name.
            return ()
        method = Function(info, cls.scope)
        if "staticmethod" not in method.info.decorators:
            method.bound = made
        return _call_alone(interpreter, method)

    return run


def _call_alone(interpreter: Interpreter, function: Function) -> Iterable[Tensor]:
    interpreter.root = function.info
    interpreter.machine.helper = function.info.owner is not None and waits_for_a_caller(function.info)
    if function.info.name == "backward" and function.info.owner is not None:
        given = _saved_by_forward(interpreter, function.info)
        if given:
            kwargs = _arguments(interpreter, function.info, skip_first=True)
            return list(
                tensors_in(
                    interpreter.call_function(
                        Function(function.info, function.scope), given, kwargs, function.info.node
                    )
                )
            )
    kwargs = _arguments(interpreter, function.info, skip_first=function.bound is not None)
    result = interpreter.call_function(function, [], kwargs, function.info.node)
    return list(tensors_in(result))


def _saved_by_forward(interpreter: Interpreter, info: FunctionInfo) -> list[object]:
    """The context of a custom backward: of its saved tensors, those that forward was given are not its own."""
    owner = info.owner
    forward = owner.methods.get("forward") if owner is not None else None
    if owner is None or forward is None or not any(b.endswith("Function") for b in owner.bases):
        return []
    calls = [
        n
        for n in ast.walk(forward.node)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "save_for_backward"
    ]
    if len(calls) != 1:
        return []
    arguments = {a.arg for a in forward.node.args.args}
    stored = {n.id for n in ast.walk(forward.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    saved: list[object] = []
    for node in calls[0].args:
        given = isinstance(node, ast.Name) and node.id in arguments - stored
        name = node.id if isinstance(node, ast.Name) else ""
        storage = Storage("saved" if given else "fresh", name, owner.name)
        saved.append(Tensor(storage, place=calls[0]))
    context = Instance(Class(owner, interpreter.globals))
    context.attributes["saved_tensors"] = Sequence(saved)
    return [context]


def _arguments(
    interpreter: Interpreter, info: FunctionInfo, *, skip_first: bool = True, config: bool = False
) -> dict[str, object]:
    """What a caller might give: of numbers and strings no value is known, the rest may be tensors."""
    spec = info.node.args
    names = [*spec.posonlyargs, *spec.args][1 if skip_first else 0 :] + spec.kwonlyargs
    if config:
        names = [*spec.posonlyargs, *spec.args][1:] + spec.kwonlyargs
    made: dict[str, object] = {}
    positional = [*spec.posonlyargs, *spec.args]
    defaults = dict(zip((a.arg for a in positional[::-1]), spec.defaults[::-1], strict=False))
    defaults.update({a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None})
    shared = {a.arg for a, d in zip(positional[::-1], spec.defaults[::-1], strict=False) if isinstance(d, ast.Call)}
    wanted = "" if config else asked_for(info, interpreter.home, interpreter.project)
    for argument in names:
        if argument.arg in shared:
            continue
        text = ast.unparse(argument.annotation) if argument.annotation is not None else ""
        handed_in = _usual_part(interpreter, defaults.get(argument.arg), info) if config else None
        if handed_in is not None:
            made[argument.arg] = handed_in
            continue
        if text in _NOT_TENSORS or (config and "Tensor" not in text and "Module" not in text):
            made[argument.arg] = interpreter.machine.unknown() if config and not text else Plain()
            continue
        # What an object was made with is its own to change.
        tensor = Tensor(Storage("unknown" if config else "argument", argument.arg), Grad.MAYBE, sure=False)
        tensor.sure = _IS_TENSOR.search(text) is not None and _NO_TENSOR.search(text) is None
        if not text and not config:
            tensor.sure = argument.arg in used_as_tensors(info)
        tensor.other = not text and argument.arg in used_as_containers(info)
        if argument.arg == wanted:
            tensor.grad = Grad.YES
        tensor.likely = not text and not config and (interpreter.home.only_torch or info.name == "forward")
        made[argument.arg] = tensor
    if spec.vararg is not None and not config:
        likely = interpreter.home.only_torch
        items = [Tensor(Storage("argument", spec.vararg.arg), Grad.MAYBE, sure=False, likely=likely) for _ in range(2)]
        made[f"*{spec.vararg.arg}"] = Sequence(list(items))
    return made


def _usual_part(interpreter: Interpreter, default: ast.expr | None, info: FunctionInfo) -> object | None:
    """The class or function that an object is built with unless its maker is told otherwise: `act=nn.ReLU`."""
    if not isinstance(default, ast.Name | ast.Attribute):
        return None
    before, interpreter.program = interpreter.program, info.program or interpreter.program
    try:
        found = interpreter.value(default, interpreter.module_scope(interpreter.program))
    finally:
        interpreter.program = before
    if (
        isinstance(found, Library)
        and found.name.startswith("torch.nn.")
        and found.name.rpartition(".")[2][:1].isupper()
    ):
        return found
    if isinstance(found, Library) and not found.name.startswith("torch."):
        found = interpreter.imported(found.name) if "." in found.name else None
    return found if isinstance(found, Class | Function) else None
