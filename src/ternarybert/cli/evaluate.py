"""The command `evaluate`: how good a model is, full-precision or packed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.console import job, make_console, note_hub, quiet, show_confusion, show_scores
from ternarybert.cli.options import DataOptions, check_device, describe, load_data, option, with_options
from ternarybert.errors import OptionError, suggest

if TYPE_CHECKING:
    from rich.console import Console

_ENGINES = ("torch", "native", "oracle")
EVALUATE_EXAMPLE = (
    "Example: ternarybert evaluate my-teacher-ternary --eval test.csv --text review --label mood --teacher my-teacher"
)


@with_options
def evaluate(
    model: Annotated[str, typer.Argument(help="A fine-tuned or a packed model: folder or hub id.", metavar="MODEL")],
    *,
    data: DataOptions,
    teacher: Annotated[
        str | None,
        option("--teacher", help="Also say how often the two agree.", panel="Evaluation", metavar="MODEL"),
    ] = None,
    batch_size: Annotated[
        int, option("--batch-size", help="Rows computed together.", panel="Evaluation", min=1, metavar="ROWS")
    ] = 32,
    engine: Annotated[
        str,
        option("--engine", help="torch, or native: the runtime of packed models, without torch.", panel="Evaluation"),
    ] = "torch",
    device: Annotated[str, option("--device", help="cpu or cuda.", panel="Evaluation")] = "cpu",
    threads: Annotated[int | None, option("--threads", help="Processor threads.", panel="Evaluation", min=1)] = None,
    as_json: Annotated[
        bool, option("--json", help="Print the result as one JSON object, last.", panel="Output")
    ] = False,
) -> None:
    """Score a model on labelled rows or answered questions, or without those against its teacher."""
    if engine not in _ENGINES:
        raise OptionError(f"unknown engine '{engine}'{suggest(engine, _ENGINES)}")
    with job():
        if engine != "torch":
            report = _evaluate_without_torch(model, data, teacher, engine, threads)
        else:
            note_hub(model)
            with quiet():
                report = _evaluate(model, data, teacher, batch_size, device, threads)
        _show(report, make_console(errors=as_json))
        if as_json:
            typer.echo(json.dumps(report))


def _evaluate(
    model: str, data: DataOptions, teacher: str | None, batch_size: int, device: str, threads: int | None
) -> dict[str, Any]:
    import torch

    from ternarybert.training.evaluate import evaluate as run
    from ternarybert.training.models import label_names

    check_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    rows = load_data(data, labels=lambda: label_names(model))
    console = make_console(errors=True)
    console.print(describe(rows))
    with console.status("evaluating") as status:
        return run(model, rows, teacher=teacher, device=device, batch_size=batch_size, status=status.update)


def _evaluate_without_torch(
    model: str, data: DataOptions, teacher: str | None, engine: str, threads: int | None
) -> dict[str, Any]:
    from ternarybert.packed import is_packed
    from ternarybert.runtime.evaluate import evaluate as run
    from ternarybert.runtime.evaluate import label_names

    if teacher is not None and not is_packed(teacher):
        raise OptionError(f"'{teacher}' is not packed, so comparing with it takes --engine torch")
    rows = load_data(data, labels=lambda: label_names(model))
    console = make_console(errors=True)
    console.print(describe(rows))
    with console.status("evaluating") as status:
        return run(model, rows, teacher=teacher, num_threads=threads, engine=engine, status=status.update)


def _show(report: dict[str, Any], console: Console) -> None:
    show_scores(console, {"score": report["sets"]})
    for name, counts in report["confusion"]["sets"].items():
        if counts is not None:
            show_confusion(console, report["confusion"]["labels"], counts, name)
    console.print(f"{report['rows']:,} rows, {report['examples_per_second']:.1f} examples/s.")
