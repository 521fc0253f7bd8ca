"""The command `inspect`: the tensors of a model folder, its size, and its distance from the original weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.console import handle_errors, make_console, make_table, print_json
from ternarybert.cli.options import OUTPUT, JsonOption, option, refuse, with_options
from ternarybert.errors import OptionError

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.packed import PackedModel
    from ternarybert.packed.inspect import Inspection, TensorStats

EXAMPLE = "Example: ternarybert inspect my-model-ternary --against my-model --plot weights.png"

_DEFAULT_BITS = "2-2-8"
_COMPARISON, _PLAIN = "Comparison", "Plain folders"


class InspectOptions(JsonOption):
    """What is shown."""

    against: Path | None = option(
        _COMPARISON, "Plain folder that the packed one was made from: adds relative error and cosine.", "FOLDER"
    )
    plot: Path | None = option(
        _COMPARISON, "Picture to draw the weights into, before and after. Needs --against.", "FILE.png"
    )
    bits: str | None = option(_PLAIN, "Bits to assume for a plain folder. By default 2-2-8.", "W-E-A")
    dense: bool = option(_PLAIN, "Assume five ternary weights per byte for a plain folder.", default=False)
    every: bool = option(OUTPUT, "List the tensors that stay float as well.", flags="--all", default=False)


@with_options
def inspect(
    folder: Annotated[
        Path, typer.Argument(help="Packed folder or hub id, or a plain folder to see its size.", metavar="FOLDER")
    ],
    *,
    options: InspectOptions,
) -> None:
    """Show a model's tensors: shape, bits, granularity, bytes, share of zeros, range of the scales."""
    from ternarybert.packed import is_packed, read
    from ternarybert.runtime.installed import local_folder

    against, plot = options.against, options.plot
    if against is None:
        refuse("without --against FOLDER, which has the weights before", plot=plot)
    if plot is not None and plot.is_dir():
        raise OptionError(f"--plot {plot} is a folder; name a picture in it, such as {plot / 'weights.png'}")
    with handle_errors():
        folder = local_folder(folder)
        if packed := is_packed(folder):
            refuse(f"on {folder}, which is packed", bits=options.bits, dense=options.dense)
            model = read(folder)
            inspection = _measure(model, folder, against, plot)
            title = f"{folder}: {_kind(model.config)} packed at {inspection.bits}"
        else:
            refuse(f"on {folder}, which is not packed", against=against)
            inspection = _estimate(folder, options.bits or _DEFAULT_BITS, options.dense)
            title = f"{folder}: not packed; estimate for {inspection.bits}"
        if options.as_json:
            print_json({"folder": str(folder), "packed": packed, **inspection.as_dict()})
        else:
            _show(make_console(errors=False), title, inspection, every=options.every)


def _measure(model: PackedModel, folder: Path, against: Path | None, plot: Path | None) -> Inspection:
    from ternarybert.packed import is_packed
    from ternarybert.packed.hf_folder import read_tensors
    from ternarybert.packed.inspect import inspect_model

    if against is None:
        return inspect_model(model)
    if is_packed(against):
        raise OptionError(f"--against {against} is packed; name the plain folder that {folder} was made from")
    before: dict[str, Any] = read_tensors(against)
    inspection = inspect_model(model, before)
    if plot is not None:
        from ternarybert.report.weights import draw

        draw(plot, model, before, f"{folder.resolve().name}, from {against.resolve().name}")
    return inspection


def _estimate(folder: Path, bits: str, dense: bool) -> Inspection:
    from ternarybert.packed.inspect import estimate, folder_shapes

    if dense and "2" not in bits.split("-")[:2]:
        raise OptionError(f"--dense packs ternary weights, and {bits} has none")
    return estimate(folder_shapes(folder), bits, packing="dense" if dense else "plain")


def _kind(config: dict[str, Any]) -> str:
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else config.get("model_type")
    # The file may come from anywhere: other characters could be control codes of the terminal.
    return name if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_\-]{1,100}", name) else "a model"


def _show(console: Console, title: str, inspection: Inspection, *, every: bool) -> None:
    from ternarybert.families import natural_order

    listed = [tensor for tensor in inspection.tensors if every or tensor.granularity is not None]
    rows = [_row(tensor) for tensor in sorted(listed, key=lambda tensor: natural_order(tensor.name))]
    if rest := [tensor for tensor in inspection.tensors if tensor not in listed]:
        rows.append({"tensor": f"{len(rest)} tensors that stay float", "bytes": f"{sum(t.bytes for t in rest):,}"})
    headings = [heading for heading in _row(inspection.tensors[0]) if any(row.get(heading) for row in rows)]
    table = make_table(*headings)
    for column in table.columns[1:]:
        column.no_wrap = True
    for row in rows:
        table.add_row(*(row.get(heading, "") for heading in headings))
    console.print(title, soft_wrap=True)
    console.print(table)
    console.print(_total(inspection), soft_wrap=True)


def _row(tensor: TensorStats) -> dict[str, str]:
    from ternarybert.families import short_name

    return {
        "tensor": short_name(tensor.name),
        "shape": " x ".join(map(str, tensor.shape)),
        "bits": f"{tensor.bits} dense" if tensor.packing == "dense" else str(tensor.bits),
        "bytes": f"{tensor.bytes:,}",
        "zeros": "" if tensor.zeros is None else f"{tensor.zeros:.1%}",
        "scale": _range(tensor.scale_min, tensor.scale_max),
        "per": tensor.granularity or "",
        "error": _number(tensor.relative_error),
        "cosine": _number(tensor.cosine),
    }


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"{low:.3g}" if low == high else f"{low:.3g} .. {high:.3g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _total(inspection: Inspection) -> str:
    return (
        f"{inspection.bytes:,} bytes of tensors = {inspection.mb:.2f} MB = {inspection.mib:.2f} MiB, "
        f"{inspection.ratio:.1f} times smaller than float32 ({inspection.float32_bytes / 2**20:.2f} MiB)"
    )
