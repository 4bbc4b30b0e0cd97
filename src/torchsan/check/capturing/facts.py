"""What is told of a captured module, or of any module when that is asked for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchsan.check.capturing.calls import Capture, captures_in
from torchsan.check.capturing.values import Reading
from torchsan.check.capturing.walk import ABOUT_CAPTURE, Walk
from torchsan.check.facts import Fact
from torchsan.check.modelling.names import words
from torchsan.check.reading.program import ClassInfo, FunctionInfo, Program
from torchsan.check.reading.project import Project
from torchsan.model import Certainty, Place, capture_events

# They do in training what they do not do in use.
_BY_MODE = words(
    """Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout BatchNorm1d BatchNorm2d BatchNorm3d
    SyncBatchNorm RReLU"""
)
_DETAIL = {
    ("jit.trace", "wrong"): "keeps what the example gave",
    ("onnx", "wrong"): "keeps what the example gave",
    ("onnx", "fails"): "the exporter cannot decide it without data",
    ("export", "fails"): "the exporter cannot decide it without data",
}


def capture_facts(program: Program, project: Project | None, *, every: bool) -> list[Fact]:
    """Faults of the modules that the file captures; with `every`, of all modules that it defines."""
    found: dict[tuple[object, ...], Fact] = {}
    for capture in captures_in(program, project):
        for fact in _of_capture(capture, program, project):
            found.setdefault(_key(fact), fact)
    if every:
        for node in program.tree.body:
            if isinstance(node, ast.ClassDef) and "forward" in (info := program.class_info(node)).methods:
                for fact in _of_walk(_walked(info, program, project), "jit.trace", None, "certain"):
                    found.setdefault(_key(fact), fact)
    return list(found.values())


def _key(fact: Fact) -> tuple[object, ...]:
    return fact.at.path, fact.at.line, fact.at.column, type(getattr(fact.event, "cause", None)).__name__


def _walked(cls: ClassInfo, program: Program, project: Project | None, *, traced: bool = False) -> Walk:
    walk = Walk(cls, cls.program or program, project, traced=traced)
    walk.run()
    return walk


def _of_capture(capture: Capture, program: Program, project: Project | None) -> Iterator[Fact]:
    walk = _walked(capture.cls, program, project, traced=capture.method == "jit.trace")
    call = program.place(capture.call)
    method = "onnx-traced" if capture.method == "onnx" and _by_trace(capture.call) else capture.method
    yield from _of_walk(walk, method, call, "certain")
    layer = _by_mode(walk.parts) if capture.training else None
    if layer is not None:
        home, node, name = layer
        verdict = _verdict("jit.trace" if capture.method == "jit.trace" else capture.method, "wrong")
        cause = capture_events.ModeUse(home.place(node), name, (f"`{name}`",), training=True, capture=call)
        yield Fact(capture_events.Fault(cause, "mode", "", (verdict,)), call)


def _by_trace(call: ast.Call) -> bool:
    return any(
        k.arg == "dynamo" and isinstance(k.value, ast.Constant) and k.value.value is False for k in call.keywords
    )


def _by_mode(parts: list[ClassInfo]) -> tuple[Program, ast.AST, str] | None:
    """A layer that one of the modules holds and that training mode changes."""
    for cls in parts:
        for name, made in cls.assigned.items():
            home = cls.program
            if home is None or not isinstance(made, ast.Call):
                continue
            space, _, layer = home.dotted(made.func).rpartition(".")
            idle = any(isinstance(a, ast.Constant) and a.value == 0 for a in made.args[:1])
            if space == "torch.nn" and layer in _BY_MODE and not (idle and "Dropout" in layer):
                return home, made, f"self.{name}"
    return None


def _verdict(method: str, what: capture_events.What) -> capture_events.Verdict:
    method = "onnx" if method == "onnx-traced" else method
    return capture_events.Verdict(method, what, _DETAIL.get((method, what), "keeps what the example gave"))


def _of_walk(walk: Walk, method: str, call: Place | None, certainty: Certainty) -> Iterator[Fact]:
    callers = (call,) if call is not None else ()
    traced = method in ("jit.trace", "onnx-traced")
    for reading in walk.readings:
        if not reading.use or (not traced and (reading.use == "number" or reading.source == "shape")):
            continue
        verdict = _verdict(method, "wrong" if traced else "fails")
        # Whether a size will ever be another one is not told by the source.
        sure: Certainty = certainty if reading.source == "data" else "possible"
        yield _fact(_read_out(reading, callers), _column(reading), verdict, sure)
    for program, node in walk.drawn:
        words = program.words(node)
        source = "NumPy" if program.dotted(node.func).startswith("numpy") else "Python's random"
        cause = capture_events.Draw(source, program.place(node), words)
        yield _fact(cause, "seed", _verdict(method, "wrong"), certainty)
    yield from _of_state(walk, method, certainty)


def _column(reading: Reading) -> capture_events.Column:
    return "size" if reading.source == "shape" else "values"


def _fact(cause: capture_events.Cause, column: capture_events.Column, verdict: object, certainty: Certainty) -> Fact:
    assert isinstance(verdict, capture_events.Verdict)
    place = getattr(cause, "place", None) or cause.writes[0]  # type: ignore[union-attr]
    return Fact(capture_events.Fault(cause, column, "", (verdict,)), place, certainty)


def _read_out(reading: Reading, callers: tuple[Place, ...]) -> capture_events.ReadOut:
    program = reading.program
    assert isinstance(program, Program)
    use = "array" if reading.kind == "numpy" and reading.use == "number" else reading.use
    return capture_events.ReadOut(
        reading.kind,
        reading.source,  # type: ignore[arg-type]
        use,  # type: ignore[arg-type]
        program.place(reading.node),
        program.words(reading.node),
        callers=callers,
    )


# --- counters --------------------------------------------------------------------------------------


def _of_state(walk: Walk, method: str, certainty: Certainty) -> Iterator[Fact]:
    for cls in walk.parts:
        bodies = [info for owner, info in walk.methods if owner is cls]
        for name, value in cls.assigned.items():
            if isinstance(value, ast.Constant) and isinstance(value.value, int) and not isinstance(value.value, bool):
                writes, reads = _uses(bodies, name)
                home = cls.program
                if writes and reads and home is not None:
                    cause = capture_events.StateUse(
                        f"self.{name}",
                        tuple(home.place(n) for n in writes),
                        tuple(home.place(n) for n in reads),
                    )
                    yield _fact(cause, "calls", _verdict(method, "wrong"), certainty)


def _uses(bodies: list[FunctionInfo], name: str) -> tuple[list[ast.AST], list[ast.AST]]:
    """Where a number of the object is counted on, and where its value decides or becomes part of a result."""
    writes: list[ast.AST] = []
    reads: list[ast.AST] = []
    for info in bodies:
        for node in _run_in_use(info.node):
            if isinstance(node, ast.AugAssign) and _is_own(node.target, name):
                writes.append(node)
            elif isinstance(node, ast.Return | ast.Assign) and node.value is not None:
                reads += [n for n in ast.walk(node.value) if _is_own(n, name)]
            elif isinstance(node, ast.If) and any(isinstance(n, ast.Return | ast.Assign) for n in node.body):
                reads += [n for n in ast.walk(node.test) if _is_own(n, name)]
    return writes, reads


def _run_in_use(node: ast.AST) -> Iterator[ast.AST]:
    """Statements, but for those that are for training or know of captures."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ABOUT_CAPTURE.search(ast.unparse(child.test)):
            continue
        if isinstance(child, ast.stmt):
            yield child
            yield from _run_in_use(child)


def _is_own(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )
