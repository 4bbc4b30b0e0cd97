"""Words that several rules share: why an op keeps a value, what a write did, which story this is."""

from __future__ import annotations

from pathlib import PurePath

from torchsan.model import Fix, Span
from torchsan.model.events import Save, StaleSave, Write

# d f / d x, for ops whose derivative people know; `{}` is nothing, plain words.
DERIVATIVES = {
    "checkpoint": "the block is computed again from this value when backward needs it",
    "exp": "d exp(x)/dx = exp(x), computed from the saved result",
    "sigmoid": "d sigmoid(x)/dx = y·(1 − y), computed from the saved result y",
    "tanh": "d tanh(x)/dx = 1 − y², computed from the saved result y",
    "relu": "the gradient passes where the saved result is positive",
    "sqrt": "d √x/dx = 1/(2·√x), computed from the saved result",
    "rsqrt": "d x^(-1/2)/dx = −½·y³, computed from the saved result y",
    "reciprocal": "d (1/x)/dx = −y², computed from the saved result y",
    "softmax": "the softmax gradient is computed from its saved result",
    "log_softmax": "the log-softmax gradient is computed from its saved result",
    "elu": "the derivative below zero is computed from the saved result",
    "selu": "the derivative below zero is computed from the saved result",
    "pow": "d xⁿ/dx = n·xⁿ⁻¹ needs the base x",
    "log": "d log(x)/dx = 1/x needs x",
    "sin": "d sin(x)/dx = cos(x) needs x",
    "cos": "d cos(x)/dx = −sin(x) needs x",
    "abs": "d |x|/dx = sign(x) needs x",
    "div": "a quotient's gradient needs its numerator and denominator",
    "mul": "`mul` keeps each factor to compute the gradient of the other",
    "mm": "a matrix product keeps each factor to compute the gradient of the other",
    "bmm": "a matrix product keeps each factor to compute the gradient of the other",
    "mv": "a matrix-vector product keeps each factor to compute the gradient of the other",
    "dot": "a dot product keeps each factor to compute the gradient of the other",
    "addmm": "a linear layer keeps its input and its weight to compute the gradient of each",
    "convolution": "a convolution keeps its input and its weight to compute the gradient of each",
    "native_layer_norm": "layer norm keeps its input and its weight to compute the gradient of each",
    "native_batch_norm": "batch norm keeps its input, weight and statistics for its gradient",
    "embedding": "an embedding keeps the indices to scatter the gradient",
}


def result_saved(save: Save) -> bool:
    return save.what in ("result", "output", "out", "result0", "result1")


def saved_label(save: Save) -> str:
    if save.what.startswith("ctx."):
        return f"kept here as `{save.what}`, for {op_words(save)}.backward".replace("`.backward", ".backward`")
    if not save.what:
        return f"saved here{' by ' + op_words(save) if save.op else ''}"
    what = "its result" if result_saved(save) else _argument(save)
    version = f" (version {save.version})" if save.version is not None else ""
    return f"saved here: {op_words(save)} needs {what}{version}"


def op_words(save: Save) -> str:
    return f"`{save.op}`"


def _argument(save: Save) -> str:
    if save.custom:
        return "a tensor given to save_for_backward"
    names = {"self": "its input", "input": "its input", "other": "its second operand", "mat1": "its input"}
    return names.get(save.what, f"its `{save.what}`")


def why_kept(save: Save) -> str:
    if save.what.startswith("ctx."):
        return f"`{save.op}.backward` reads `{save.what}`, which only save_for_backward would have guarded"
    if save.custom:
        return f"`{save.op}.forward` gave it to ctx.save_for_backward"
    if not save.op:
        return "autograd keeps a reference to the values that a gradient needs, not a copy"
    known = DERIVATIVES.get(save.op)
    if known is not None:
        return known
    if result_saved(save):
        return f"the gradient of `{save.op}` is computed from its saved result"
    return f"the gradient of `{save.op}` is computed from {_argument(save)}"


def write_words(write: Write) -> str:
    if write.kind == "optimizer":
        return f"`{write.op}()`"
    plain = {"__setitem__": "an indexed assignment", ".data =": "an assignment to `.data`"}
    return plain.get(write.op, f"`{write.op}`")


def versions(event: StaleSave) -> str:
    before = event.save.version
    after = event.write.version
    if before is None or after is None or after <= before:
        return ""
    return f" (version {after - 1} → {after})"


def stale_spans(event: StaleSave, overwritten: str) -> list[Span]:
    """Saved, overwritten, needed, in the order in which they happened."""
    spans: list[Span] = []
    if event.constructor is not None:
        spans.append(event.constructor.span("origin", "this layer writes in place"))
    if event.exposed is not None:
        spans.append(event.exposed.span("aliased", "its memory becomes writable behind autograd's back here"))
    if event.save.line is not None:
        spans.extend(event.save.line.spans("saved", saved_label(event.save)))
    if event.write.line is not None:
        spans.extend(event.write.line.spans("mutated", overwritten, primary=True))
    written = event.write.line.place if event.write.line is not None else None
    for other in event.more_writes[:3]:
        # A chain `x.sub_(a).div_(b)` is one line to mend, not two.
        if other.line is not None and (written is None or other.line.place.line != written.line):
            spans.append(other.line.span("mutated", "and overwritten here"))
    if event.needed is not None:
        label = "compiled here, and with it the gradient" if event.compiling else "needed here"
        spans.append(event.needed.span("needed", label))
    return spans


def story(event: StaleSave) -> str:
    """The common story behind a stale value, in a sentence; empty when it is none that we know."""
    write, needed, save = event.write, event.needed, event.save
    if write.line is None or needed is None:
        return ""
    if event.compiling:
        return (
            "torch.compile makes the backward when it compiles the forward; in eager this fails once backward is called"
        )
    if save.in_backward:
        return "the value was saved by a backward with create_graph=True, which this backward goes through"
    at, then = write.line.place, needed.place
    if at.path == then.path and at.function == then.function and at.line > then.line:
        return (
            "the write comes after this backward in the source, so the value is from an earlier pass of the loop: "
            "a hidden state or a result that is carried over; detach it, or compute it in every pass"
        )
    if write.kind == "optimizer" or _by_an_optimizer(write):
        return (
            "two losses share these weights, and the step for one comes before the backward of the other; "
            "in GAN and actor-critic updates run the second forward after the first step"
        )
    if event.memory.kind == "parameter":
        if write.op.startswith(("clamp", "clip")):
            return "weights are clipped between forward and backward; clip after the optimizer's step"
        return "weights are updated by hand (an average, a copy) between forward and backward; do it after backward"
    if write.op in ("__isub__", "__itruediv__", "sub_", "div_"):
        return "the value is shifted or scaled in place, as in normalising; `x = x - m` makes a new tensor"
    if write.op == "__iadd__" and not result_saved(save):
        return "`+=` writes into the tensor itself; a residual sum needs `x = x + y` here"
    return ""


def _by_an_optimizer(write: Write) -> bool:
    """The line that writes is one of torch's optimizers."""
    library = write.line.library if write.line is not None else None
    return library is not None and PurePath(library.path).parts[-3:-1] == ("torch", "optim")


def idea(title: str) -> Fix:
    """Advice that nobody has run yet."""
    return Fix(title)
