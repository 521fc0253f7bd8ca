"""The command `inspect`: what is in a model folder, how small it is, and how far from the weights it came from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.errors import MissingExtraError, OptionError

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.packed import PackedModel
    from ternarybert.packed.inspect import Inspection, TensorStats

INSPECT_EXAMPLE = "Example: ternarybert inspect my-model-ternary --against my-model --plot weights.png"

_WIDTH = 120  # of tables that go into a file or a pipe
_DEFAULT_BITS = "2-2-8"


def inspect(
    folder: Annotated[Path, typer.Argument(help="A packed folder, or a plain one to see what it would become.")],
    against: Annotated[
        Path | None,
        typer.Option(help="The plain folder it came from: adds relative error and cosine.", metavar="TEACHER"),
    ] = None,
    bits: Annotated[
        str | None, typer.Option(help="For a plain folder: W-E-A bits, 2-2-8 if not given.", metavar="W-E-A")
    ] = None,
    dense: Annotated[bool, typer.Option("--dense", help="For a plain folder: five ternary weights a byte.")] = False,
    every: Annotated[bool, typer.Option("--all", help="List the tensors that stay float, too.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw weights before and after into this picture; needs --against.", metavar="FILE.png"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with everything.")] = False,
) -> None:
    """Show a model's tensors: shape, bits, granularity, bytes, share of zeros, range of the scales."""
    from ternarybert.packed import is_packed, read

    if plot is not None and against is None:
        raise OptionError("--plot shows weights before and after, and needs --against TEACHER for those before")
    if plot is not None and plot.is_dir():
        raise OptionError(f"--plot {plot} is a folder; name a picture in it, such as {plot / 'weights.png'}")
    if packed := is_packed(folder):
        if bits is not None or dense:
            raise OptionError(f"{folder} is packed already; --bits and --dense are for plain folders")
        model = read(folder)
        inspection = _measure(model, folder, against, plot)
        title = f"{folder}: {_kind(model.config)} packed at {inspection.bits}"
    else:
        if against is not None:
            raise OptionError(f"{folder} is not packed; --against compares a packed folder with the one it came from")
        inspection = _estimate(folder, bits or _DEFAULT_BITS, dense)
        title = f"{folder}: not packed; what it would be at {inspection.bits}"
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "packed": packed, **inspection.as_dict()}))
    else:
        _show(_console(), title, inspection, every=every)


def _measure(model: PackedModel, folder: Path, against: Path | None, plot: Path | None) -> Inspection:
    from ternarybert.packed import is_packed
    from ternarybert.packed.hf_folder import read_tensors
    from ternarybert.packed.inspect import inspect_model

    if against is None:
        return inspect_model(model)
    if is_packed(against):
        raise OptionError(f"{against} is packed, too; --against takes the plain folder that a packed one came from")
    before: dict[str, Any] = read_tensors(against)
    inspection = inspect_model(model, before)
    if plot is not None:
        try:
            from ternarybert.report.weights import draw
        except ImportError as error:
            raise MissingExtraError("pictures need more: pip install 'ternarybert[report]'") from error
        draw(plot, model, before, f"{folder.resolve().name}, from {against.resolve().name}")
    return inspection


def _estimate(folder: Path, bits: str, dense: bool) -> Inspection:
    from ternarybert.packed.inspect import estimate, folder_shapes

    if dense and "2" not in bits.split("-")[:2]:
        raise OptionError(f"--dense is a way to pack ternary weights, and {bits} has none")
    return estimate(folder_shapes(folder), bits, packing="dense" if dense else "plain")


def _kind(config: dict[str, Any]) -> str:
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else config.get("model_type")
    # Whatever else others wrote there may not be printable, or may tell the terminal what to do.
    return name if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_\-]{1,100}", name) else "a model"


def _console() -> Console:
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH
    return console


def _show(console: Console, title: str, inspection: Inspection, *, every: bool) -> None:
    from rich import box
    from rich.table import Table

    from ternarybert.families import natural_order

    listed = [tensor for tensor in inspection.tensors if every or tensor.granularity is not None]
    rows = [_row(tensor) for tensor in sorted(listed, key=lambda tensor: natural_order(tensor.name))]
    if rest := [tensor for tensor in inspection.tensors if tensor not in listed]:
        rows.append({"tensor": f"{len(rest)} tensors that stay float", "bytes": f"{sum(t.bytes for t in rest):,}"})
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    headings = [heading for heading in _row(inspection.tensors[0]) if any(row.get(heading) for row in rows)]
    for heading in headings:
        left = heading == "tensor"
        table.add_column(heading, justify="left" if left else "right", no_wrap=not left, overflow="fold")
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
