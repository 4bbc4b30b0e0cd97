"""Names of torch that the engine treats in ways of their own; everything else comes from the effects table."""

from __future__ import annotations

import ast
from functools import cache

from torchsan.effects import names


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FACTORIES = words(
    """zeros ones empty full rand randn randint randperm arange linspace logspace eye tensor zeros_like
    ones_like empty_like full_like rand_like randn_like randint_like tril_indices triu_indices normal
    bernoulli multinomial complex"""
)
# Functions of NumPy whose result is new memory.
NEW_ARRAYS = words("ones zeros empty full array arange linspace eye rand randn uniform normal ones_like zeros_like")
# Ops that only add: a constant in one of their terms stays a constant of the sum.
ADDITIVE = words("add sub rsub sum mean neg squeeze unsqueeze view reshape")
# Their result may or may not share the input's memory: nothing is claimed of it.
MAY_SHARE = words(
    """reshape reshape_as flatten contiguous to type float double half bfloat16 cpu cuda int long bool
    type_as ravel as_tensor asarray nan_to_num conj resolve_conj resolve_neg squeeze_copy atleast_1d
    atleast_2d atleast_3d unflatten dropout dropout1d dropout2d dropout3d alpha_dropout identity positive
    real imag broadcast_tensors meshgrid where_"""
)
# Of these, the ones that copy only what is not contiguous.
USUALLY_SHARED = words("reshape reshape_as flatten contiguous ravel unflatten")
# They copy only where there is something to convert.
CONVERSIONS = words("to type float double half cpu cuda type_as")
NORMS = frozenset({"norm", "vector_norm"})
# They end with an underscore but change no values.
NOT_WRITING = frozenset({"requires_grad_", "share_memory_", "rename_", "retain_grad", "resize_"})
# They change the shape of the tensor object, not its elements.
SHAPE_ONLY = words("unsqueeze_ squeeze_ transpose_ t_ swapaxes_ swapdims_")
INTEGER = words(
    """argmax argmin argsort eq ne lt le gt ge isnan isinf isfinite logical_and logical_or logical_not
    logical_xor nonzero bincount searchsorted bucketize one_hot any all int long bool numel"""
)
PLAIN_METHODS = words(
    """size dim numel item tolist stride element_size data_ptr is_contiguous is_floating_point ndimension
    storage_offset is_complex get_device nelement __len__ is_cuda"""
)
PLAIN_ATTRIBUTES = words(
    "shape dtype device ndim requires_grad is_leaf layout is_cuda is_sparse is_nested names itemsize"
)
ARRAY_ATTRIBUTES = words("shape ndim dtype device size dim T transpose")
# Seeing one of these on a value proves that it is a tensor.
TENSOR_ONLY = words(
    """size view unsqueeze permute device contiguous masked_fill masked_fill_ chunk expand detach backward
    view_as numel is_leaf requires_grad requires_grad_ add_ mul_ sub_ div_ clamp_ zero_ fill_ copy_ normal_
    uniform_ index_add_ scatter_ scatter_add_ masked_scatter_ index_copy_ index_fill_ expand_as
    data sigmoid tanh relu softmax exp_ sigmoid_ tanh_ relu_ sqrt_ index_put_ addcmul_ addcdiv_
    lerp_"""
)
# Methods that arrays of NumPy, lists, strings, modules or pictures have, too.
_OTHERS_HAVE = words(
    """all any argmax argmin argpartition argsort astype choose clip compress conj conjugate copy cumprod cumsum
    data diagonal dot dtype fill flat flatten imag item max mean min ndim nonzero partition prod put ravel real
    repeat reshape resize round searchsorted shape size sort squeeze std strides sum swapaxes take tolist trace
    transpose var view append clear count extend index insert pop remove reverse split strip format get items
    keys values update add union difference rotate convert crop load filter sample log_prob entropy to cuda cpu
    float double half type apply requires_grad_ parameters bfloat16 int long bool share_memory_ sub mul div pow
    eq ne lt le gt ge abs neg log exp sqrt cos sin T H mT mH names map where mode median type_as register_hook
    is_cuda logical_not int_repr values_ indices crow col sign isin tile unique matmul rename rename_ align_to
    set_ update_ init_ step_ normalize_ roll norm"""
)


@cache
def only_tensors_have() -> frozenset[str]:
    """Methods that prove a value to be a tensor."""
    found = {n.rpartition(".")[2] for n in names() if "." not in n}
    return frozenset(n for n in found if not n.startswith("_") and n not in _OTHERS_HAVE) | TENSOR_ONLY


@cache
def tensor_methods() -> frozenset[str]:
    return frozenset(n for n in names() if "." not in n)


WITH_PARAMETERS = words(
    """Linear Bilinear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d BatchNorm1d
    BatchNorm2d BatchNorm3d SyncBatchNorm LayerNorm GroupNorm RMSNorm Embedding EmbeddingBag PReLU LSTM GRU
    RNN LSTMCell GRUCell RNNCell MultiheadAttention TransformerEncoderLayer TransformerDecoderLayer
    TransformerEncoder TransformerDecoder Transformer"""
)
CONTAINERS = words("Sequential ModuleList ModuleDict ParameterList ParameterDict")
# Layers that, working in place, keep their result for the gradient; the others keep a copy of their input or a mask.
KEEP_RESULT_IN_PLACE = words("ReLU SELU LeakyReLU ELU CELU RReLU")
# Where `inplace` stands when given by position.
INPLACE_POSITION = {
    "ReLU": 0,
    "ReLU6": 0,
    "SELU": 0,
    "SiLU": 0,
    "Hardswish": 0,
    "Hardsigmoid": 0,
    "Mish": 0,
    "LeakyReLU": 1,
    "ELU": 1,
    "CELU": 1,
    "Dropout": 1,
    "Dropout1d": 1,
    "Dropout2d": 1,
    "Dropout3d": 1,
    "AlphaDropout": 1,
    "RReLU": 2,
    "Threshold": 2,
    "Hardtanh": 2,
}
BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "bitwise_left_shift",
    ast.RShift: "bitwise_right_shift",
}
GRAD_MODES = {
    "torch.no_grad": "no_grad",
    "torch.autograd.no_grad": "no_grad",
    "torch.autograd.grad_mode.no_grad": "no_grad",
    "torch.inference_mode": "inference",
    "torch.autograd.inference_mode": "inference",
    "torch.enable_grad": "grad",
    "torch.set_grad_enabled": "unsure",
    "torch.autograd.set_grad_enabled": "unsure",
}
# Questions about how the program runs, with the answer for plain training in Python.
RUN_QUESTIONS = {
    "torch.jit.is_tracing": False,
    "torch.jit.is_scripting": False,
    "torch._C._is_tracing": False,
    "torch._C._get_tracing_state": None,
    "torch.compiler.is_compiling": False,
    "torch.compiler.is_exporting": False,
    "torch.compiler.is_dynamo_compiling": False,
    "torch._dynamo.is_compiling": False,
    "torch.onnx.is_in_onnx_export": False,
    "torch.is_grad_enabled": True,
    "torch.is_inference_mode_enabled": False,
    "torch.cuda.is_available": False,
    "torch.is_inference": False,
}
