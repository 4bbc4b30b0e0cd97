"""Every private API of torch's compilers that we lean on, and what happens where it is missing.

None of these modules is imported before the program has done so itself.

- `torch._dynamo.eval_frame._maybe_set_eval_frame`: where compiled code begins and ends; required to watch regions.
- `torch._dynamo.callback.CompilationCallbackHandler.install_callbacks`: around each compilation; required.
- `torch._dynamo.output_graph.OutputGraph.call_user_compiler`: the graph of each region; required.
- `torch._dynamo.guards.CheckFunctionManager`: which of our patches compiled code looks at; required.
- `GraphModule._lineno_map`, `_prologue_start`: lines of graphs that run as Python; without them they are not known.
- `torch._dynamo.trace_rules.add`, `torch._dynamo.eval_frame.skip_code`: keep dynamo from compiling our own functions,
  and those of our dataclasses, which are in no file; without them it may try.
- `torch._functorch._aot_autograd.graph_compile._aot_stage2a_partition`: which values a region saves, and for which
  line; without it such saves are told without their line.
- `torch._functorch.config.enable_autograd_cache`: off while regions are watched, since what comes from that cache was
  not traced; without it cached regions are told without the line of their saves.
- `torch._subclasses.fake_tensor.FakeTensorMode`: running a graph without data; required.
- `OptimizedModule._orig_mod`, `_torchdynamo_orig_callable`, `Module._compiled_call_impl`: what was compiled; without
  them a compiled model is verified as it is.
- `torch._dynamo.convert_frame.output_codes`: which code objects dynamo wrote; without it none is taken for one.
- `SymInt.node.hint`: the size that a symbolic one has in the first call; required where shapes are dynamic.
- `torch._inductor.*` as the module of a frame: which processes inductor starts for itself; without it they are noted as
  ones that could not be followed.
- `torch._subclasses.meta_utils.tls`: whether fakes of tensors from inference mode are such; without it they are not.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
import torch.fx


def dynamo(name: str) -> Any:
    """A module of dynamo, when the program has loaded it already."""
    return sys.modules.get(f"torch._dynamo.{name}")


def is_loaded() -> bool:
    """Is dynamo there with all its parts?"""
    package = sys.modules.get("torch._dynamo")
    loaded = getattr(getattr(package, "__spec__", None), "_initializing", False) is False
    return package is not None and loaded and dynamo("output_graph") is not None


def is_in_use() -> bool:
    """Has dynamo looked at code of the program's? Its counters tell; where they are missing, being loaded tells."""
    counters = getattr(dynamo("utils"), "counters", None)
    return bool(counters.get("frames")) if counters is not None else is_loaded()


def is_inductors(frame: FrameType | None) -> bool:
    """Is it inductor that has come to this frame?"""
    if "torch._inductor" not in sys.modules:
        return False
    while frame is not None:
        if str(dict.get(frame.f_globals, "__name__")).startswith("torch._inductor."):
            return True
        frame = frame.f_back
    return False


def hooks() -> dict[str, tuple[Any, str]] | None:
    """Where to listen: name of the hook, owner and attribute. None where this torch has other places."""
    found = {
        "enter": (dynamo("eval_frame"), "_maybe_set_eval_frame"),
        "compiling": (getattr(dynamo("callback"), "CompilationCallbackHandler", None), "install_callbacks"),
        "backend": (getattr(dynamo("output_graph"), "OutputGraph", None), "call_user_compiler"),
        "guards": (getattr(dynamo("guards"), "CheckFunctionManager", None), "__init__"),
    }
    if any(owner is None or not hasattr(owner, name) for owner, name in found.values()):
        return None
    return found


def force_eager(on: bool = True) -> None:
    """Let whatever is compiled run as plain Python, or compile again."""
    torch.compiler.set_stance("force_eager" if on else "default")


# The dictionaries of hooks that all optimizers share.
OPTIMIZER_HOOKS = frozenset({"_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"})


def guard_names(output: Any) -> list[str]:
    """The expressions that the guards of a compiled frame look at."""
    try:
        return [str(getattr(guard, "name", "")) for guard in output.guards]
    except Exception:
        return []


def is_export(output: Any) -> bool:
    return bool(getattr(output, "export", False))


def function_name(output: Any) -> str:
    """The function whose code the graph of a region comes from."""
    code = getattr(getattr(output, "root_tx", None), "f_code", None)
    return str(getattr(code, "co_qualname", ""))


def runs_users_code(output: Any) -> bool:
    """Does the graph call Python functions that the user allowed in it?"""
    return bool(getattr(output, "has_user_defined_allowed_in_graph", False))


def is_generated(code: Any) -> bool:
    """Is this code object one that dynamo wrote?"""
    codes = getattr(dynamo("convert_frame"), "output_codes", None)
    try:
        return codes is not None and code in codes
    except Exception:
        return False


def code_lines(module: Any) -> tuple[Any, dict[int, Any]] | None:
    """The code object of a graph module's `forward`, and the node behind each of its lines."""
    try:
        from torch.fx._lazy_graph_module import _LazyGraphModule

        if isinstance(module, _LazyGraphModule):
            _LazyGraphModule.force_recompile(module)
        code = type(module).forward.__code__
        nodes = list(module.graph.nodes)
        start = module._prologue_start
        return code, {line + start: nodes[n] for line, n in module._lineno_map.items() if n is not None}
    except Exception:
        return None


_EVAL_FRAME = "torch._dynamo.eval_frame"
_frame_callback = getattr(getattr(torch._C._dynamo, "eval_frame", None), "get_eval_frame_callback", None)


def hold() -> Any:
    """Keep dynamo from looking at the frames that we are about to run; gives what `release` puts back.

    Asked several times a step: where dynamo looks at nothing, there is nothing to put back.
    """
    module = sys.modules.get(_EVAL_FRAME)
    if module is None or (_frame_callback is not None and _frame_callback() is None):
        return None
    return module.set_eval_frame(None)


def release(held: Any) -> None:
    if held is not None:
        sys.modules[_EVAL_FRAME].set_eval_frame(held)


def untraced(method: Callable[..., Any]) -> Callable[..., Any]:
    """For work of ours that the program's own frames may call while dynamo looks at what they call."""

    @wraps(method)
    def held(*args: Any, **kwargs: Any) -> Any:
        before = hold()
        try:
            return method(*args, **kwargs)
        finally:
            release(before)

    return held


def never_trace(package: str) -> None:
    """Compiled code calls our patches now and then: dynamo must run them as they are."""
    rules = dynamo("trace_rules")
    folder = getattr(sys.modules.get(package), "__path__", [""])[0]
    if rules is not None and folder and not any(str(known).startswith(folder) for known in rules.SKIP_DIRS):
        rules.add(package)
    skip = getattr(dynamo("eval_frame"), "skip_code", None)
    if skip is not None:
        for code in _written_for(package):
            skip(code)


def _written_for(package: str) -> Iterator[CodeType]:
    """Methods that the standard library wrote for classes of a package, which are in none of its files."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(f"{package}."):
            continue
        for cls in [value for value in list(vars(module).values()) if type(value) is type]:
            for member in list(vars(cls).values()):
                if isinstance(member, FunctionType) and member.__code__.co_filename == "<string>":
                    yield member.__code__


AOT_MODULE = "torch._functorch._aot_autograd.graph_compile"


def aot_partition() -> tuple[Any, str] | None:
    module = sys.modules.get(AOT_MODULE)
    name = "_aot_stage2a_partition"
    return (module, name) if module is not None and hasattr(module, name) else None


@contextmanager
def uncached() -> Iterator[None]:
    """Let AOTAutograd trace anew what its cache knows; compiled kernels still come from theirs."""
    config = sys.modules.get("torch._functorch.config")
    dynamo_config = dynamo("config")
    precompiling = getattr(dynamo_config, "caching_precompile", False) or getattr(
        config, "strict_autograd_cache", False
    )
    if config is None or precompiling or not hasattr(config, "enable_autograd_cache"):
        yield
        return
    with config.patch(enable_autograd_cache=False):
        yield


def aot_id(node: Any) -> int | None:
    """Which compiled region an autograd node belongs to."""
    cls = getattr(node, "_forward_cls", None) or getattr(type(node), "_forward_cls", None)
    found = getattr(cls, "_aot_id", None)
    return found if isinstance(found, int) else None


@contextmanager
def inference_known() -> Iterator[None]:
    """Let fakes of tensors that were made in inference mode be such, too: dynamo looks away while it compiles."""
    state = getattr(sys.modules.get("torch._subclasses.meta_utils"), "tls", None)
    before = getattr(state, "disable_inference_mode", None)
    if before is None:
        yield
        return
    state.disable_inference_mode = False  # type: ignore[union-attr]
    try:
        yield
    finally:
        state.disable_inference_mode = before  # type: ignore[union-attr]


@contextmanager
def fake_mode() -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """A world without data. Yields the function that brings a tensor into it; shared memory stays shared."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    # A world of its own: nothing that happens here can add a guard to what is being compiled.
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)
    with torch._guards.tracing(None), mode:
        yield lambda tensor: mode.from_tensor(tensor, static_shapes=True)


def plain_number(value: Any) -> Any:
    """The number that a symbolic size stands for in this call; to ask for it otherwise would make dynamo guard it."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    return value.node.hint


def is_fake(value: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def user_stack(attributes: dict[str, Any]) -> list[Any]:
    """The user's lines that dynamo was looking at when it raised the error with these attributes, outermost first."""
    found = attributes.get("real_stack")
    return list(found) if isinstance(found, traceback.StackSummary) else []


def undone(model: Any) -> tuple[Any, str]:
    """What `torch.compile` was given, and the expression that gets it; the thing itself and "" where it was not."""
    eval_frame = dynamo("eval_frame")
    if eval_frame is not None and isinstance(model, eval_frame.OptimizedModule):
        return model._orig_mod, "model._orig_mod"
    given = vars(model).get("_torchdynamo_orig_callable") if isinstance(model, FunctionType) else None
    return (model, "") if given is None else (given, "model._torchdynamo_orig_callable")


def compiles(model: torch.nn.Module) -> bool:
    """Is the module, or one inside it, compiled when it is called?"""
    if not is_loaded():
        return False
    return any(
        undone(inner)[1] or getattr(inner, "_compiled_call_impl", None) is not None or undone(type(inner).forward)[1]
        for inner in model.modules()
    )
