"""The command `evaluate`: scores a model, full-precision or packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.console import (
    announce_download,
    handle_errors,
    make_console,
    print_json,
    quiet,
    show_confusion,
    show_scores,
)
from ternarybert.cli.data import describe, load_data
from ternarybert.cli.options import (
    ENGINE,
    DataOptions,
    JsonOption,
    check_device,
    option,
    set_threads,
    with_options,
)
from ternarybert.errors import OptionError, suggest

if TYPE_CHECKING:
    from rich.console import Console

_ENGINES = ("torch", "native", "oracle")
_EVALUATION, _BATCH_SIZE = "Evaluation", 32
_WITHOUT_TORCH = "evaluate a packed model with --engine native"
EXAMPLE = (
    "Example: ternarybert evaluate my-teacher-ternary --eval test.csv --text review --label mood --teacher my-teacher"
)


class EvaluateOptions(JsonOption):
    """What computes, and what the model is compared with."""

    teacher: str | None = option(_EVALUATION, "Also report how often the model agrees with this one.", "MODEL")
    engine: str = option(
        ENGINE,
        "Engine: torch (any model), native (packed models, without torch) or oracle (the native computation in NumPy, "
        "slow).",
        "NAME",
        default="torch",
    )
    batch_size: int | None = option(ENGINE, "Rows per batch, with --engine torch. By default 32.", "ROWS", min=1)
    device: str | None = option(ENGINE, "Device, with --engine torch: cpu or cuda. By default cpu.", "NAME")
    threads: int | None = option(ENGINE, "Number of CPU threads. By default all usable cores.", min=1)


@with_options
def evaluate(
    model: Annotated[str, typer.Argument(help="Fine-tuned or packed model: a folder or a hub id.", metavar="MODEL")],
    *,
    data: DataOptions,
    options: EvaluateOptions,
) -> None:
    """Score a model on labelled rows or answered questions; without labels, by its agreement with a teacher."""
    if options.engine not in _ENGINES:
        raise OptionError(f"unknown engine '{options.engine}'{suggest(options.engine, _ENGINES)}")
    with handle_errors(otherwise=_WITHOUT_TORCH):
        if options.engine == "torch":
            announce_download(model)
            with quiet():
                report = _evaluate(model, data, options)
        else:
            report = _evaluate_packed(model, data, options)
        _show(report, make_console(errors=options.as_json))
        if options.as_json:
            print_json(report)


def _evaluate(model: str, data: DataOptions, options: EvaluateOptions) -> dict[str, Any]:
    from ternarybert.training.evaluate import evaluate as run
    from ternarybert.training.models import label_names

    device, batch_size = options.device or "cpu", options.batch_size or _BATCH_SIZE
    check_device(device)
    set_threads(options.threads)
    rows = load_data(data, labels=lambda: label_names(model))
    console = make_console(errors=True)
    console.print(describe(rows))
    with console.status("evaluating") as status:
        return run(model, rows, teacher=options.teacher, device=device, batch_size=batch_size, status=status.update)


def _evaluate_packed(model: str, data: DataOptions, options: EvaluateOptions) -> dict[str, Any]:
    from ternarybert.packed import is_packed
    from ternarybert.runtime.evaluate import evaluate as run
    from ternarybert.runtime.evaluate import label_names

    engine, teacher = options.engine, options.teacher
    if teacher is not None and not is_packed(teacher):
        raise OptionError(f"the teacher '{teacher}' is not packed and needs --engine torch")
    rows = load_data(data, labels=lambda: label_names(model))
    console = make_console(errors=True)
    console.print(describe(rows))
    with console.status("evaluating") as status:
        return run(model, rows, teacher=teacher, num_threads=options.threads, engine=engine, status=status.update)


def _show(report: dict[str, Any], console: Console) -> None:
    show_scores(console, {"score": report["sets"]})
    for name, counts in report["confusion"]["sets"].items():
        if counts is not None:
            show_confusion(console, report["confusion"]["labels"], counts, name)
    console.print(f"{report['rows']:,} rows, {report['examples_per_second']:.1f} examples/s.")
