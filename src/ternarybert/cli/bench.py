"""The command `bench`: this machine, a model, and the engines one could use instead."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.console import job, make_console, quiet
from ternarybert.cli.options import option, with_options
from ternarybert.errors import OptionError

if TYPE_CHECKING:
    from rich.console import Console


BENCH_EXAMPLE = (
    "Example: ternarybert bench my-model-ternary --teacher my-model\n\n"
    "Without a model: ternarybert bench --shape base --threads 2 --plot speed.png"
)
_WHAT, _HOW, _OUTPUT = "What is timed", "How", "Output"


@with_options
def bench(
    folder: Annotated[
        Path | None, typer.Argument(help="A packed classifier; without one, random weights.", metavar="[FOLDER]")
    ] = None,
    *,
    teacher: Annotated[
        Path | None,
        option("--teacher", help="The plain model that the others run; else FOLDER unpacked.", panel=_WHAT),
    ] = None,
    shape: Annotated[
        str, option("--shape", help="Without FOLDER: base (12 x 768) or mini (6 x 384).", panel=_WHAT)
    ] = "base",
    batch: Annotated[
        list[str] | None,
        option("--batch", help="BATCHxLENGTH or ragged (32 real lengths). Repeatable.", panel=_WHAT, metavar="SHAPE"),
    ] = None,
    engine: Annotated[
        list[str] | None, option("--engine", help="Time only these. Repeatable.", panel=_WHAT, metavar="NAME")
    ] = None,
    threads: Annotated[int, option("--threads", help="Of every engine.", panel=_HOW, min=1)] = 1,
    rounds: Annotated[int, option("--rounds", help="Turns of every engine.", panel=_HOW, min=1)] = 5,
    seconds: Annotated[float, option("--seconds", help="For an engine and batch in a round.", panel=_HOW)] = 0.5,
    plot: Annotated[Path | None, option("--plot", help="Draw the table: PNG, SVG or PDF.", panel=_OUTPUT)] = None,
    as_json: Annotated[bool, option("--json", help="Print one JSON object, last.", panel=_OUTPUT)] = False,
) -> None:
    r"""Time a packed model beside torch, ONNX Runtime, OpenVINO and CTranslate2 on this machine.

    Every engine runs in its own process, they take turns, and medians are compared. Engines that are not installed are
    named; all of them come with: pip install 'ternarybert\[bench,train]'.
    """
    with job():
        if teacher is not None and folder is None:
            raise OptionError("--teacher goes with the packed FOLDER that was made from it")
        from ternarybert.bench.engines import ENGINES
        from ternarybert.bench.inputs import SHAPES
        from ternarybert.bench.report import make_report
        from ternarybert.bench.run import BenchPlan
        from ternarybert.bench.run import bench as run

        plan = BenchPlan(engine or list(ENGINES), batch or SHAPES, threads, rounds, seconds)
        console = make_console(errors=True)
        with tempfile.TemporaryDirectory(prefix="ternarybert-bench-") as place, console.status("preparing") as status:
            work = Path(place) / "run"
            work.mkdir()
            if folder is None:
                folder, teacher = _random(Path(place), shape)
            with quiet():
                timings = run(folder, work, plan, plain=teacher, on_progress=status.update)
            report = make_report(timings, folder, plan)
        _show(report, make_console(errors=as_json))
        if plot is not None:
            from ternarybert.bench.report import draw

            draw(report, plot)
            console.print(f"The chart is in {plot}.")
        if as_json:
            typer.echo(json.dumps(report))


def _random(place: Path, shape: str) -> tuple[Path, Path]:
    """A model of random weights, packed and plain."""
    from ternarybert.bench.random_model import shape_named, write_random

    write_random(place / "random", place / "random plain", shape_named(shape))
    return place / "random", place / "random plain"


def _show(report: dict[str, Any], console: Console) -> None:
    from rich import box
    from rich.table import Table

    from ternarybert.bench.report import failures, headings, machine, rows

    first, *others = headings(report)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    for row in rows(report):
        table.add_row(*row)
    console.print(machine(report))
    console.print(table)
    for line in failures(report):
        console.print(line, soft_wrap=True)
    for name, rate in report["gmacs"].items():
        share = f", {rate / report['peak_gmacs']:.0%} of this CPU's peak" if report["peak_gmacs"] else ""
        console.print(f"ours at {name}: {rate:.0f} GMAC/s{share}")
