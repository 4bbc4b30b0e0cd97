"""Capture tiny transformers (random weights, no download) in every way and tell how each fared.

    python benchmarks/zoo.py [--only NAME …] [--method NAME …] [--cap SECONDS] [--markdown FILE]

Few architectures share a process, so that one that hangs or crashes costs little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

BATCH = 5
SMALL = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
KEYS = {"num_key_value_heads": 1}
GPT = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "vocab_size": 60, "n_ctx": 64}
BART = {
    "vocab_size": 60,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
T5 = {"vocab_size": 60, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
PICTURE = {"image_size": 32, "patch_size": 8, "num_channels": 3}
VISION = {
    k: v
    for k, v in SMALL.items()
    if k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
}

# name of the model type: (kind of input, settings)
ZOO: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("text", SMALL),
    "roberta": ("text", SMALL),
    "xlm-roberta": ("text", SMALL),
    "albert": ("text", {**SMALL, "embedding_size": 8}),
    "electra": ("text", {**SMALL, "embedding_size": 8}),
    "distilbert": ("text", {"vocab_size": 60, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 24}),
    "mobilebert": (
        "text",
        {**SMALL, "embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
    ),
    "mpnet": ("text", SMALL),
    "camembert": ("text", SMALL),
    "deberta-v2": ("text", SMALL),
    "deberta": ("text", SMALL),
    "convbert": ("text", {**SMALL, "embedding_size": 16, "head_ratio": 1}),
    "squeezebert": ("text", {**SMALL, "embedding_size": 16, "q_groups": 1, "k_groups": 1, "v_groups": 1,
                             "post_attention_groups": 1, "intermediate_groups": 1, "output_groups": 1}),
    "layoutlm": ("text", SMALL),
    "fnet": ("text-no-mask", {**SMALL, "use_tpu_fourier_optimizations": False}),
    "roformer": ("text", {**SMALL, "embedding_size": 16}),
    "ernie": ("text", SMALL),
    "rembert": ("text", {**SMALL, "input_embedding_size": 8, "output_embedding_size": 8}),
    "megatron-bert": ("text", SMALL),
    "modernbert": ("text", {**SMALL, "global_attn_every_n_layers": 1}),
    "gpt2": ("text", GPT),
    "gpt_neo": ("text", {**SMALL, "num_layers": 1, "num_heads": 2, "attention_types": [[["global"], 1]]}),
    "gpt_neox": ("text", SMALL),
    "gptj": ("text", {**GPT, "rotary_dim": 4}),
    "codegen": ("text", {**GPT, "n_head": 4, "rotary_dim": 4}),
    "openai-gpt": ("text", GPT),
    "ctrl": ("text", {**GPT, "dff": 24}),
    "opt": ("text", {**SMALL, "ffn_dim": 24, "word_embed_proj_dim": 16}),
    "bloom": ("text", {"vocab_size": 60, "hidden_size": 16, "n_layer": 1, "n_head": 2}),
    "llama": ("text", {**SMALL, **KEYS}),
    "mistral": ("text", {**SMALL, **KEYS}),
    "qwen2": ("text", {**SMALL, **KEYS}),
    "qwen3": ("text", {**SMALL, **KEYS, "head_dim": 8}),
    "gemma": ("text", {**SMALL, **KEYS, "head_dim": 8}),
    "gemma2": ("text", {**SMALL, **KEYS, "head_dim": 8}),
    "phi": ("text", {**SMALL, **KEYS}),
    "phi3": ("text", {**SMALL, **KEYS}),
    "stablelm": ("text", {**SMALL, **KEYS}),
    "starcoder2": ("text", {**SMALL, **KEYS}),
    "olmo": ("text", {**SMALL, **KEYS}),
    "cohere": ("text", {**SMALL, **KEYS}),
    "falcon": ("text", {**SMALL, "new_decoder_architecture": False}),
    "granite": ("text", {**SMALL, **KEYS}),
    "mixtral": ("text", {**SMALL, **KEYS, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "t5": ("both", T5),
    "bart": ("both", BART),
    "mbart": ("both", BART),
    "pegasus": ("both", BART),
    "blenderbot": ("both", BART),
    "marian": ("both", BART),
    "vit": ("picture", {**VISION, **PICTURE}),
    "deit": ("picture", {**VISION, **PICTURE}),
    "beit": ("picture", {**VISION, **PICTURE}),
    "dinov2": ("picture", {**VISION, **PICTURE}),
    "vit_mae": ("picture", {**VISION, **PICTURE, "mask_ratio": 0.0}),
    "resnet": ("picture", {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1]}),
    "convnext": ("picture", {"num_stages": 2, "hidden_sizes": [8, 8], "depths": [1, 1]}),
    "regnet": ("picture", {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "groups_width": 4}),
    "mobilenet_v2": ("picture", {"depth_multiplier": 0.25, "image_size": 32}),
    "swin": ("picture", {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 1],
                         "num_heads": [1, 1], "window_size": 2}),
    "segformer": ("picture", {"depths": [1, 1], "hidden_sizes": [8, 8], "num_encoder_blocks": 2,
                              "sr_ratios": [2, 1], "num_attention_heads": [1, 1], "patch_sizes": [3, 3],
                              "strides": [2, 2], "mlp_ratios": [2, 2]}),
}  # fmt: skip


def make(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A tiny model of the architecture, in eval mode, with example inputs."""
    import torch
    import transformers

    kind, settings = ZOO[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **settings)
    if hasattr(config, "use_cache"):
        # A cache among the results is no tensor: capture the model as it is used for one pass.
        config.use_cache = False
    model = transformers.AutoModel.from_config(config).eval()
    ids = torch.randint(3, 60, (2, 7))
    if kind == "picture":
        return model, (), {"pixel_values": torch.randn(2, 3, 32, 32)}
    inputs = {"input_ids": ids}
    if kind != "text-no-mask":
        inputs["attention_mask"] = torch.ones(2, 7, dtype=torch.long)
    if kind == "both":
        inputs["decoder_input_ids"] = torch.randint(3, 60, (2, 5))
    return model, (), inputs


def one(name: str, methods: list[str], budget: float) -> dict[str, Any]:
    """The row of one architecture."""
    import torchsan

    started = time.perf_counter()
    model, args, kwargs = make(name)
    report = torchsan.verify(model, args, kwargs, methods=methods, budget=budget)
    data = report.as_json()
    rows = {
        c["method"]: {"outcome": c["outcome"], "tried": c["tried"], "reason": _reason(c, data)}
        for c in data["captures"]
    }
    cut = any("budget ended" in note for note in report.notes)
    return {"name": name, "rows": rows, "cut": cut, "seconds": round(time.perf_counter() - started, 1)}


def _reason(capture: dict[str, Any], data: dict[str, Any]) -> str:
    if capture["outcome"] == "faithful":
        return ""
    found = data["findings"][capture["finding"]] if capture["finding"] is not None else None
    if found is None:
        return f"{_short(capture['reason'])}; remedy: another method"
    at = next(span for span in found["spans"] if span["primary"])
    remedy = found["fixes"][0]["title"] if found["fixes"] else ""
    bad = [name for name, cell in capture["checks"].items() if cell in ("differs", "refuses")]
    return f"{found['code']} {_short(at['path'])}:{at['line']} ({', '.join(bad) or 'capture'}); remedy: {remedy}"


def _short(path: str) -> str:
    return path.rpartition("site-packages/")[2]


def isolated(names: list[str], methods: list[str], budget: float) -> list[dict[str, Any]]:
    """Some architectures in a process of their own; what a crash leaves undone is tried alone."""
    command = [sys.executable, "-W", "ignore", __file__, "--budget", str(budget), "--here"]
    for option, values in (("--method", methods), ("--only", names)):
        for value in values:
            command += [option, value]
    # Tiny models gain nothing from threads and lose much on a busy machine.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    limit = (budget * 2 + 60) * len(names)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            out, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate()[0], "no answer in time"
    done = [dict(json.loads(line)) for line in out.splitlines() if line.startswith("{")]
    for result in done:
        outcomes = {m: row["outcome"] for m, row in result["rows"].items()}
        print(result["name"], outcomes or result["error"], f"{result['seconds']} s", file=sys.stderr, flush=True)
    missing = [name for name in names if name not in {result["name"] for result in done}]
    if len(names) == 1 and missing:
        text = (errors.strip().splitlines() or ["no output"])[-1]
        return [{"name": names[0], "rows": {}, "error": text[:160], "seconds": 0.0}]
    return done + [row for name in missing for row in isolated([name], methods, budget)]


def here(names: list[str], methods: list[str], budget: float) -> None:
    for name in names:
        try:
            row = one(name, methods, budget)
        except Exception as error:
            row = {
                "name": name,
                "rows": {},
                "error": f"{type(error).__name__}: {error}"[:160],
                "seconds": 0.0,
            }
        print(json.dumps(row), flush=True)


def _cell(row: dict[str, Any] | None) -> str:
    """The outcome and on how many inputs it rests."""
    if row is None:
        return "–"
    return f"{row['outcome']} ({row['tried']})" if row.get("tried") else str(row["outcome"])


def table(results: list[dict[str, Any]], methods: list[str]) -> str:
    """Outcomes by method, then what is wrong and what to do, in Markdown."""
    lines = ["| architecture | " + " | ".join(methods) + " | seconds |", "|---" * (len(methods) + 2) + "|"]
    for result in results:
        cells = [_cell(result["rows"].get(m)) + " (cut short)" * result.get("cut", False) for m in methods]
        lines.append(f"| {result['name']} | " + " | ".join(cells) + f" | {result['seconds']} |")
    lines += ["", "| architecture | method | what and where |", "|---|---|---|"]
    for result in results:
        if result.get("error"):
            lines.append(f"| {result['name']} | all | {result['error'].replace('|', '/')} |")
        for method, row in result["rows"].items():
            if row["reason"]:
                lines.append(f"| {result['name']} | {method} | {row['reason'].replace('|', '/')} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(ZOO), metavar="NAME")
    parser.add_argument("--method", action="append", metavar="NAME")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds for one architecture")
    parser.add_argument("--cap", type=float, default=1500.0, help="seconds for all; what is left over is not run")
    parser.add_argument("--jobs", type=int, default=1, help="architectures at a time")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    methods = args.method or ["export", "jit.script", "jit.trace"]
    names = list(args.only or ZOO)
    if args.here:
        here(names, methods, args.budget)
        return 0
    started = time.perf_counter()

    def batch(some: list[str]) -> list[dict[str, Any]]:
        if time.perf_counter() - started > args.cap:
            print(f"cap of {args.cap:.0f} s reached: {', '.join(some)} not run", file=sys.stderr)
            return []
        return isolated(some, methods, args.budget)

    batches = [names[i : i + BATCH] for i in range(0, len(names), BATCH)]
    with ThreadPoolExecutor(args.jobs) as pool:
        results = [row for rows in pool.map(batch, batches) for row in rows]
    text = table(results, methods)
    if args.markdown:
        args.markdown.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
