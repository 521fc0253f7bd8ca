"""The command `bench`: times a packed model beside the engines one could use instead."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.console import handle_errors, make_console, make_table, print_json, quiet
from ternarybert.cli.options import OUTPUT, JsonOption, option, refuse, with_options
from ternarybert.errors import OptionError
from ternarybert.storage import lock_output

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = (
    "Example: ternarybert bench my-model-ternary --teacher my-model\n\n"
    "Without a model: ternarybert bench --shape base --threads 2 --plot speed.png\n\n"
    "Do answers depend on the batch? ternarybert bench my-model-ternary --invariance --texts texts.txt"
)
_MODELS, _MEASUREMENT, _INVARIANCE = "Models and batches", "Measurement", "Invariance"


class BenchOptions(JsonOption):
    """What is timed, and how."""

    teacher: Path | None = option(
        _MODELS, "Plain model that the other engines run. By default FOLDER, unpacked.", "MODEL"
    )
    shape: str | None = option(
        _MODELS, "Size of the random model: base (12 layers x 768) or mini (6 x 384). By default base.", "NAME"
    )
    batch: list[str] | None = option(
        _MODELS,
        "Batch to time: SIZExLENGTH, or ragged (32 texts of real lengths). Repeatable. By default several.",
        "BATCH",
    )
    engine: list[str] | None = option(_MODELS, "Engine to time. Repeatable. By default all.", "NAME")
    threads: int = option(_MEASUREMENT, "CPU threads of every engine.", default=1, min=1)
    rounds: int = option(_MEASUREMENT, "Number of rounds; engines take turns in each.", default=5, min=1)
    seconds: float = option(_MEASUREMENT, "Time per engine and batch in a round, in seconds.", default=0.5)
    invariance: bool = option(
        _INVARIANCE,
        "Instead of times: how much the answers to the same texts change with batch size, order, padding, threads and "
        "kernel.",
        default=False,
    )
    texts: Path | None = option(
        _INVARIANCE, "Texts of --invariance, one per line (a .txt file). By default random words.", "FILE"
    )
    plot: Path | None = option(OUTPUT, "Chart to draw: a PNG, SVG or PDF file.", "FILE")


@with_options
def bench(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Packed classifier: a folder or a hub id. By default a model with random weights.", metavar="[FOLDER]"
        ),
    ] = None,
    *,
    options: BenchOptions,
) -> None:
    r"""Time a packed model beside torch, ONNX Runtime, OpenVINO and CTranslate2 on this machine.

    Every engine runs in its own process; they take turns, and medians are compared. Engines that are not installed are
    listed. To install them all: pip install 'ternarybert\[bench,train]'.
    """
    with handle_errors(), ExitStack() as stack:
        teacher, plot = options.teacher, options.plot
        if teacher is not None and folder is None:
            raise OptionError(f"--teacher {teacher} needs the packed FOLDER that was made from it")
        if folder is not None:
            refuse(f"on {folder}, which has its own shape", shape=options.shape)
            from ternarybert.runtime.installed import local_folder

            folder = local_folder(folder)
        if options.invariance:
            _invariance(folder, options)
            return
        refuse("without --invariance", texts=options.texts)
        from ternarybert.bench.engines import ENGINES
        from ternarybert.bench.inputs import SHAPES
        from ternarybert.bench.report import make_report
        from ternarybert.bench.run import BenchPlan
        from ternarybert.bench.run import bench as run

        engines, batches = options.engine or list(ENGINES), options.batch or SHAPES
        plan = BenchPlan(engines, batches, options.threads, options.rounds, options.seconds)
        console = make_console(errors=True)
        if plot is not None:
            stack.enter_context(lock_output(plot))
        with tempfile.TemporaryDirectory(prefix="ternarybert-bench-") as made, console.status("preparing") as status:
            temporary, work = Path(made), Path(made) / "run"
            work.mkdir()
            if folder is None:
                folder, teacher = _random(temporary, options.shape or "base")
            with quiet():
                timings = run(folder, work, plan, plain=teacher, on_progress=status.update)
            report = make_report(timings, folder, plan)
        _show(report, make_console(errors=options.as_json))
        if plot is not None:
            from ternarybert.bench.report import draw

            draw(report, plot)
            console.print(f"The chart is in {plot}.", soft_wrap=True)
        if options.as_json:
            print_json(report)


def _invariance(folder: Path | None, options: BenchOptions) -> None:
    timing = {"threads": options.threads != 1, "rounds": options.rounds != 5, "seconds": options.seconds != 0.5}
    refuse("with --invariance, which does not measure time", plot=options.plot, batch=options.batch, **timing)
    from ternarybert.bench.invariance import INVARIANCE_ENGINES, measure_invariance

    texts = None if options.texts is None else _read_texts(options.texts)
    if texts is not None and folder is None:
        raise OptionError(f"--texts {options.texts} needs a packed FOLDER; a random model has no tokenizer")
    console = make_console(errors=True)
    with tempfile.TemporaryDirectory(prefix="ternarybert-bench-") as made, console.status("preparing") as status:
        work, teacher = Path(made) / "run", options.teacher
        work.mkdir()
        if folder is None:
            folder, teacher = _random(Path(made), options.shape or "base")
        with quiet():
            report = measure_invariance(
                folder,
                work,
                engines=options.engine or INVARIANCE_ENGINES,
                texts=texts,
                plain=teacher,
                on_progress=status.update,
            )
    _show_invariance(report, make_console(errors=options.as_json))
    if options.as_json:
        print_json(report)


def _read_texts(path: Path) -> list[str]:
    from ternarybert.data.readers import read_table

    table = read_table(path)
    if table.named:
        raise OptionError(f"--texts {path}: give a .txt file with one text per line")
    return [str(text) for text in next(iter(table.columns.values()))]


def _show_invariance(report: dict[str, Any], console: Console) -> None:
    from ternarybert.bench.invariance import invariance_headings, invariance_rows
    from ternarybert.bench.report import failures

    table = make_table(*invariance_headings(report))
    for row in invariance_rows(report):
        table.add_row(*row)
    what = "texts" if report["real_texts"] else "sequences of random words"
    shortest, longest = report["lengths"]
    console.print(f"{report['texts']:,} {what} of {shortest} to {longest} tokens, {report['cpu']}")
    console.print(table)
    console.print("Compared with each text alone: the largest difference of a logit, and how many labels changed.")
    for line in failures(report):
        console.print(line, soft_wrap=True)


def _random(folder: Path, shape: str) -> tuple[Path, Path]:
    """A model of random weights, packed and plain."""
    from ternarybert.bench.random_model import shape_named, write_random

    write_random(folder / "random", folder / "random plain", shape_named(shape))
    return folder / "random", folder / "random plain"


def _show(report: dict[str, Any], console: Console) -> None:
    from ternarybert.bench.report import failures, headings, machine, rows

    table = make_table(*headings(report))
    for row in rows(report):
        table.add_row(*row)
    console.print(machine(report))
    console.print(table)
    for line in failures(report):
        console.print(line, soft_wrap=True)
    for name, rate in report["gmacs"].items():
        share = f", {rate / report['peak_gmacs']:.0%} of this CPU's peak" if report["peak_gmacs"] else ""
        console.print(f"ours at {name}: {rate:.0f} GMAC/s{share}")
