"""Make the effects table: `python -m torchsan.effects.probe [--op NAME …] [--output DIR]`.

Writes, aliases and random draws come from the schemas of torch's ops; what a gradient needs comes from
running torch's own operator and module databases (torch.testing, which wants `expecttest` installed).
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from torchsan.effects.trial import Tally, tensors_of, try_sample

SAMPLES = 4
LOOK_AT = 60
# Division by an integer rule is another function; `x / y` is what people write.
PREFERRED_VARIANT = {"div": "no_rounding_mode", "round": "", "softmax": "", "log_softmax": ""}
READOUTS = {"item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__array__"}

Row = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m torchsan.effects.probe", description=__doc__)
    parser.add_argument("--op", action="append", help="only this op, printed instead of written")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("tables"), help="folder of the tables")
    args = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = probe(args.op)
    if args.op:
        print(json.dumps(rows, indent=1))
        return 0
    keep(args.output, torch.__version__.partition("+")[0], rows)
    return 0


def keep(folder: Path, version: str, rows: dict[str, Row]) -> None:
    """One torch gives the table; of every other the rows that differ are kept."""
    table, differences = folder / "ops.json", folder / "differences.json"
    base = json.loads(table.read_text(encoding="utf-8"))
    known = json.loads(differences.read_text(encoding="utf-8"))
    if version == base["torch"]:
        table.write_text(f'{{"torch": "{version}", "ops": {{\n{_lines(rows)}\n}}}}\n', encoding="utf-8")
        known[version] = {}
    else:
        every = rows.keys() | base["ops"].keys()
        known[version] = {n: rows.get(n) for n in every if rows.get(n) != base["ops"].get(n)}
    versions = sorted(known, key=lambda v: [int(part) for part in v.split(".")])
    told = ",\n".join(f'"{v}": {{\n{_lines(known[v])}\n}}' for v in versions)
    differences.write_text(f"{{{told}}}\n", encoding="utf-8")
    print(f"torch {version}: {len(rows)} ops, {len(known[version])} not as in the table")


def _lines(rows: dict[str, Any]) -> str:
    """One op a line: small, and readable in a diff."""
    return ",\n".join(f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows))


def probe(only: Iterable[str] | None = None) -> dict[str, Row]:
    wanted = set(only) if only else None
    rows = {name: row for name, row in schema_rows() if wanted is None or name in wanted}
    for name, row in itertools.chain(operator_rows(wanted), module_rows(wanted)):
        rows.setdefault(name, {}).update(row)
    return {name: row for name, row in rows.items() if row}


# --- from schemas -----------------------------------------------------------------------------------


def schema_rows() -> Iterator[tuple[str, Row]]:
    schemas: dict[str, list[Any]] = {}
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "aten" and not name.startswith("_") and not name.endswith(("_backward", "_copy")):
            schemas.setdefault(_public(name), []).append(schema)
    for name, overloads in schemas.items():
        row = _schema_row(name, overloads)
        if row:
            yield name, row


def _public(name: str) -> str:
    for space in ("linalg", "special", "fft"):
        if name.startswith(space + "_"):
            return name.replace("_", ".", 1)
    return name


def _schema_row(name: str, overloads: list[Any]) -> Row:
    plain = [s for s in overloads if not any(a.name == "out" or a.is_out for a in s.arguments)]
    if not plain or not any("Tensor" in str(a.type) for s in plain for a in s.arguments):
        return {}
    row: Row = {}
    written = {a.name for s in plain for a in s.arguments if _is_written(a)}
    if written:
        row["writes"] = ["input" if n == "self" else n for n in sorted(written)]
    if name in READOUTS or all(_returns_python(s) for s in plain):
        row["readout"] = True
    views = [s for s in plain if _is_view(s)]
    if views and not written:
        row["view"] = "multi" if any("List" in str(r.type) for r in views[0].returns) else "view"
    if any(torch.Tag.nondeterministic_seeded in _tags(s) for s in plain):
        row["random"] = True
    return row


def _is_written(argument: Any) -> bool:
    return bool(argument.alias_info and argument.alias_info.is_write and "Tensor" in str(argument.type))


def _returns_python(schema: Any) -> bool:
    kinds = [str(r.type) for r in schema.returns]
    return bool(kinds) and all(kind in ("bool", "int", "float", "number", "Scalar") for kind in kinds)


def _is_view(schema: Any) -> bool:
    return any(r.alias_info and not r.alias_info.is_write for r in schema.returns)


def _tags(schema: Any) -> list[Any]:
    try:
        packet = getattr(torch.ops.aten, schema.name.partition("::")[2])
        return list(getattr(packet, schema.overload_name or "default").tags)
    except AttributeError:
        return []


# --- from running -----------------------------------------------------------------------------------


def operator_rows(wanted: set[str] | None) -> Iterator[tuple[str, Row]]:
    from torch.testing._internal.common_methods_invocations import op_db

    by_name: dict[str, list[Any]] = {}
    for info in op_db:
        if not info.name.startswith("_") or info.name.startswith("__"):
            by_name.setdefault(info.name, []).append(info)
    for name, infos in by_name.items():
        if wanted is not None and not wanted & {name, name + "_"}:
            continue
        preferred = PREFERRED_VARIANT.get(name)
        chosen = [i for i in infos if preferred is None or i.variant_test_name == preferred] or infos
        for inplace in (False, True):
            tally, names = _probe_operator(chosen, inplace=inplace)
            if tally.samples:
                yield name + "_" * inplace, _row_of(tally, names, inplace=inplace)
        for alias in {a.name for info in infos for a in info.aliases}:
            yield alias, {"same_as": name}


def _probe_operator(infos: list[Any], *, inplace: bool) -> tuple[Tally, list[str]]:
    tally = Tally()
    known: list[str] = []
    for info in infos:
        op = info.get_inplace() if inplace else info.op
        if op is None or torch.float64 not in info.supported_dtypes("cpu"):
            continue
        names = _parameter_names(info)
        for sample in _spread(_samples(info)):
            tensors, labels, call = _bind(op, sample, names)
            known = max(known, labels, key=len)
            try_sample(tally, call, tensors, labels)
    return tally, known


def _spread(samples: Iterator[Any]) -> Iterator[Any]:
    """A few samples of every shape of call: all tensors, some given as numbers, some left out."""
    taken: dict[tuple[str, ...], int] = {}
    for sample in itertools.islice(samples, LOOK_AT):
        shape = tuple(type(v).__name__ for v in (sample.input, *sample.args)) + tuple(sample.kwargs)
        taken[shape] = taken.get(shape, 0) + 1
        if taken[shape] <= SAMPLES:
            yield sample
            if taken[shape] == 1 and [type(v) for v in sample.args] == [torch.Tensor]:
                yield type(sample)(sample.input, args=(2,), kwargs=sample.kwargs)


def _samples(info: Any) -> Iterator[Any]:
    try:
        yield from info.sample_inputs("cpu", torch.float64, requires_grad=False)
    except Exception:
        # A sample generator that cannot run here (a missing optional package) has nothing to show.
        return


def _parameter_names(info: Any) -> list[str]:
    """Positional parameter names: from Python where there is a signature, else from the schema."""
    try:
        names = list(inspect.signature(info.op).parameters)
        if names and names[0] not in ("args", "self_or_args"):
            return ["input", *names[1:]]
    except (TypeError, ValueError):
        pass
    try:
        packet = getattr(torch.ops.aten, info.aten_name or info.name)
        schemas = [getattr(packet, o)._schema for o in packet.overloads() if "out" not in o]
    except AttributeError:
        return []
    best = max(schemas, key=lambda s: sum("Tensor" in str(a.type) for a in s.arguments), default=None)
    return [] if best is None else ["input", *(a.name for a in best.arguments[1:])]


def _bind(op: Any, sample: Any, names: list[str]) -> tuple[list[Any], list[str], Any]:
    """The sample's tensors with their names, and a call that takes replacements for them."""
    values = [sample.input, *sample.args]
    labels: list[str] = []
    for position, value in enumerate(values):
        base = names[position] if position < len(names) else f"arg{position}"
        labels += [base] * len(tensors_of(value))
    for key, value in sample.kwargs.items():
        labels += [key] * len(tensors_of(value))
    tensors = tensors_of(values) + tensors_of(list(sample.kwargs.values()))

    def call(replacements: list[Any]) -> Any:
        supply = iter(replacements)
        args = [_replaced(v, supply) for v in values]
        kwargs = {k: _replaced(v, supply) for k, v in sample.kwargs.items()}
        return op(*args, **kwargs)

    return tensors, labels, call


def _replaced(value: Any, supply: Iterator[Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return next(supply)
    if isinstance(value, (tuple, list)) and tensors_of(value):
        return type(value)([_replaced(v, supply) for v in value])
    return value


def module_rows(wanted: set[str] | None) -> Iterator[tuple[str, Row]]:
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        name = f"nn.{info.module_cls.__name__}"
        if (wanted is None or name in wanted) and not name.startswith("nn.Lazy"):
            tally = _probe_module(info)
            if tally.samples:
                yield name, _row_of(tally, ["input"])


def _probe_module(info: Any) -> Tally:
    tally = Tally()
    inputs = info.module_inputs_func(info, "cpu", torch.float64, False, True)
    for entry in itertools.islice(inputs, SAMPLES):
        made, given = entry.constructor_input, entry.forward_input
        if given is None or made.kwargs.get("inplace"):
            continue
        try:
            module = info.module_cls(*made.args, **made.kwargs).to(torch.float64)
        except (TypeError, RuntimeError):
            continue
        _probe_instance(tally, module, given)
    return tally


def _probe_instance(tally: Tally, module: Any, given: Any) -> None:
    weights = dict(module.named_parameters())
    own = tensors_of(list(given.args)) + tensors_of(list(given.kwargs.values()))
    labels = ["input" if i == 0 else f"input{i}" for i in range(len(own))] + list(weights)

    def call(replacements: list[Any]) -> Any:
        supply = iter(replacements)
        args = [_replaced(v, supply) for v in given.args]
        kwargs = {k: _replaced(v, supply) for k, v in given.kwargs.items()}
        swapped = dict(zip(weights, supply, strict=True))
        return torch.func.functional_call(module, swapped, tuple(args), kwargs)

    try_sample(tally, call, own + list(weights.values()), labels)


def _row_of(tally: Tally, names: list[str], *, inplace: bool = False) -> Row:
    row: Row = {"params": list(dict.fromkeys(names))}
    if inplace:
        row["writes"] = ["input"]
    for key, always in (("needs", True), ("may_need", False)):
        needs: dict[str, list[str]] = {}
        for what, source in tally.pairs("need:", always=always):
            # After an in-place op its input is its result.
            if not (inplace and what == "input"):
                needs.setdefault(what, []).append(source)
        if needs:
            row[key] = {what: sorted(set(sources)) for what, sources in sorted(needs.items())}
    shared = sorted({what for what, _ in tally.pairs("alias:", always=True)})
    if shared:
        row["alias"] = shared
    maybe = sorted({what for what, _ in tally.pairs("alias:", always=False)} - set(shared))
    if maybe:
        row["may_alias"] = maybe
    if tally.outputs > 1:
        row["outputs"] = tally.outputs
    return row


if __name__ == "__main__":
    raise SystemExit(main())
