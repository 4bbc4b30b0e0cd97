"""Run the bugs that `torchsan check` found in real packages: each must make torch raise.

    python benchmarks/ecosystem_proofs.py FOLDER…    # where the wheels and repositories were unpacked

Needs torch and what the packages import. A package that cannot be imported here is said to be skipped.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

Proof = Callable[[], torch.Tensor]


class _Anything(type):
    """A class with every attribute: `InterpolationMode.NEAREST` is a string here."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


class _Absent(types.ModuleType):
    """Stands in for what packages import for things that the proofs do not use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return _version(name)
        return _Anything(name, (torch.nn.Module,), {})


def _version(name: str) -> str:
    if name != "__version__":
        raise AttributeError(name)
    return "0.0"


class _Finder:
    """Only for modules that are not installed."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in ("torchvision", "loguru", "einx"):
            return None
        return importlib.machinery.ModuleSpec(name, _Finder, is_package=True)

    @staticmethod
    def create_module(spec: Any) -> types.ModuleType:
        return _Absent(spec.name)

    @staticmethod
    def exec_module(module: types.ModuleType) -> None:
        module.__path__ = []


def two_way_transformer(model: str, prefix: str) -> Proof:
    """`queries += target_embedding` overwrites what `v_proj` of the layer before has saved."""

    def run() -> torch.Tensor:
        modeling = importlib.import_module(f"transformers.models.{model}.modeling_{model}")
        settings = importlib.import_module(f"transformers.models.{model}.configuration_{model}")
        config = getattr(settings, f"{prefix}MaskDecoderConfig")(
            hidden_size=16, mlp_dim=16, num_attention_heads=2, num_hidden_layers=2
        )
        config._attn_implementation = "eager"
        net = getattr(modeling, f"{prefix}TwoWayTransformer")(config)
        points, image, places = torch.randn(1, 1, 3, 16), torch.randn(1, 16, 4, 4), torch.randn(1, 16, 4, 4)
        queries, keys = net(points, image, places, None, target_embedding=torch.randn(1, 1, 1, 16))
        return queries.sum() + keys.sum()

    return run


def doge() -> torch.Tensor:
    """`routing_weights /= …` overwrites the result that softmax has saved."""
    from transformers.models.doge.configuration_doge import DogeConfig
    from transformers.models.doge.modeling_doge import DogeCDMoE

    config = DogeConfig(
        hidden_size=8, intermediate_size=8, num_experts=16, num_experts_per_tok=2, norm_topk_prob=True, is_moe=True
    )
    out = DogeCDMoE(config)(torch.randn(2, 3, 8))
    return (out[0] if isinstance(out, tuple) else out).sum()


def with_stand_ins(name: str) -> Any:
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)  # type: ignore[arg-type]
    return importlib.import_module(name)


def timm_model(name: str) -> Any:
    return with_stand_ins(f"timm.models.{name}")


def tnt() -> torch.Tensor:
    """`nn.Dropout(inplace=True)` after softmax overwrites the result that softmax has saved."""
    attention = timm_model("tnt").Attention(dim=8, hidden_dim=8, num_heads=2, attn_drop=0.5)
    return attention(torch.randn(2, 3, 8)).sum()


def fasternet() -> torch.Tensor:
    """The slicing variant of the partial convolution overwrites the slice that the convolution has saved."""
    module = timm_model("fasternet")
    net = module.Partial_conv3(dim=8, n_div=4, forward="slicing")
    return net(torch.randn(2, 8, 6, 6)).sum()


def polar_embedding() -> torch.Tensor:
    """`self.learned_bias.uniform_` writes to a parameter outside of no_grad, when the option asks for it."""
    embedding = with_stand_ins("x_transformers.x_transformers").PolarEmbedding(dim=8, heads=2, bias_uniform_init=True)
    return embedding.learned_bias.sum()


def golden_gate() -> torch.Tensor:
    """The same in another package."""
    made = with_stand_ins("vit_pytorch.vit_nd_pope").GoldenGatePoPENd(2, 2, 8, init_learned_bias_uniform=True)
    return made.learned_bias.sum()


def bottleneck(module: str, channels: int) -> Proof:
    """`out += residual` overwrites the result that ReLU has saved."""

    def run() -> torch.Tensor:
        net = with_stand_ins(f"model.backbone.{module}").BottleNeck(channels, channels // 4)
        return net(torch.randn(2, channels, 5, 5)).sum()

    return run


def pyramid_attention() -> torch.Tensor:
    """Each slice is overwritten by the result of the convolution that has saved it."""
    return with_stand_ins("model.attention.PSA").PSA(channel=8, reduction=2)(torch.randn(2, 8, 5, 5)).sum()


PROOFS: dict[str, Proof] = {
    "transformers sam": two_way_transformer("sam", "Sam"),
    "transformers sam_hq": two_way_transformer("sam_hq", "SamHQ"),
    "transformers sam2": two_way_transformer("sam2", "Sam2"),
    "transformers sam2_video": two_way_transformer("sam2_video", "Sam2Video"),
    "transformers edgetam": two_way_transformer("edgetam", "EdgeTam"),
    "transformers edgetam_video": two_way_transformer("edgetam_video", "EdgeTamVideo"),
    "transformers sam3_tracker": two_way_transformer("sam3_tracker", "Sam3Tracker"),
    "transformers sam3_tracker_video": two_way_transformer("sam3_tracker_video", "Sam3TrackerVideo"),
    "transformers doge": doge,
    "timm tnt": tnt,
    "timm fasternet": fasternet,
    "x-transformers polar embedding": polar_embedding,
    "vit-pytorch golden gate": golden_gate,
    "External-Attention resnet": bottleneck("resnet", 16),
    "External-Attention PSA": pyramid_attention,
}
REFUSALS = ("modified by an inplace operation", "a leaf Variable that requires grad is being used in an in-place")


def outcome(proof: Proof) -> str:
    torch.manual_seed(0)
    try:
        loss = proof()
    except ImportError as error:
        return f"skipped: {error}"
    except Exception as error:
        if any(words in str(error) for words in REFUSALS):
            return "PROVED"
        return f"could not be built: {type(error).__name__}: {str(error).splitlines()[0][:120]}"
    try:
        loss.backward()
    except RuntimeError as error:
        return "PROVED" if any(words in str(error) for words in REFUSALS) else f"another error: {error}"
    return "not a bug: backward runs"


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    sys.path[:0] = sys.argv[1:]
    results = {name: outcome(proof) for name, proof in PROOFS.items()}
    for name, said in results.items():
        print(f"{name:<36} {said}")
    proved = sum(said == "PROVED" for said in results.values())
    skipped = sum(said.startswith("skipped") for said in results.values())
    print(f"{proved} of {len(results)} proved, {skipped} skipped")
    return 0 if proved + skipped == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
