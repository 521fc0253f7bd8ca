"""The command `evaluate`: scores a model, full-precision or packed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
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
from ternarybert.cli.data import describe, load_data, load_plain_texts
from ternarybert.cli.options import (
    DATA,
    ENGINE,
    DataOptions,
    JsonOption,
    OptionGroup,
    check_device,
    option,
    refuse,
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


class VectorOptions(OptionGroup):
    """Data on which the vectors of an embedder are measured; each may be repeated."""

    sts: list[Path] | None = option(
        DATA, "Embedders: pairs with a score of their similarity; gives Spearman and Pearson of the cosines.", "FILE"
    )
    pairs: list[Path] | None = option(
        DATA, "Embedders: pairs with 1 (same) or 0; gives the average precision of the cosines.", "FILE"
    )
    retrieval: list[Path] | None = option(
        DATA,
        "Embedders: folder with corpus.jsonl, queries.jsonl and qrels/test.tsv; gives nDCG@10, MRR@10, recall@100.",
        "FOLDER",
    )

    @property
    def given(self) -> bool:
        """Whether vectors are to be measured."""
        return any((self.sts, self.pairs, self.retrieval))


class EvaluateOptions(JsonOption):
    """What computes, and what the model is compared with."""

    teacher: str | None = option(_EVALUATION, "Also report how often the model agrees with this one.", "MODEL")
    submission: Path | None = option(
        _EVALUATION,
        "Write the predictions for the test set of --task to this archive, as the GLUE server takes it, instead of "
        "scoring. Repeat the command for other tasks: their files are added.",
        "FILE.zip",
    )
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
    vectors: VectorOptions,
    options: EvaluateOptions,
) -> None:
    """Score a model on labeled rows or answered questions; without labels, by its agreement with a teacher.

    The vectors of an embedder are scored with --sts, --pairs and --retrieval, with --teacher also its teacher's, and
    the student's queries against the teacher's documents (asymmetric).
    """
    if options.engine not in _ENGINES:
        raise OptionError(f"unknown engine '{options.engine}'{suggest(options.engine, _ENGINES)}")
    with handle_errors(otherwise=_WITHOUT_TORCH):
        from ternarybert.runtime.installed import local_folder

        if options.submission is not None:
            _submit(model, data, options, options.submission)
            return
        if vectors.given:
            report = _evaluate_vectors(model, data, vectors, options)
            _show_vectors(report, make_console(errors=options.as_json))
            if options.as_json:
                print_json(report)
            return
        if options.engine == "torch":
            announce_download(model)
            with quiet():
                report = _evaluate(model, data, options)
        else:
            report = _evaluate_packed(str(local_folder(model)), data, options)
        _show(report, make_console(errors=options.as_json))
        if options.as_json:
            print_json(report)


def _evaluate_vectors(
    model: str, data: DataOptions, vectors: VectorOptions, options: EvaluateOptions
) -> dict[str, Any]:
    from ternarybert.embedding_evaluation import evaluate_embedder

    refuse(
        "with --sts, --pairs and --retrieval",
        eval=data.evaluation,
        task=data.task,
        data=data.data,
        max_length=data.max_length,
        batch_size=options.batch_size,
        device=options.device,
    )
    with quiet(), make_console(errors=True).status("evaluating") as status:
        return evaluate_embedder(
            model,
            sts=vectors.sts or (),
            pairs=vectors.pairs or (),
            retrieval=vectors.retrieval or (),
            teacher=options.teacher,
            engine=options.engine,
            num_threads=options.threads,
            status=status.update,
            **data.columns,
        )


def _show_vectors(report: dict[str, Any], console: Console) -> None:
    columns: dict[str, dict[str, dict[str, float]]] = {}
    for sets in report["sets"].values():
        for name, by_model in sets.items():
            for which, scores in by_model.items():
                columns.setdefault(which, {})[name] = scores
    show_scores(console, columns)
    console.print(f"{report['texts']:,} texts, {report['texts_per_second']:.1f} texts/s.")


def _evaluate(model: str, data: DataOptions, options: EvaluateOptions) -> dict[str, Any]:
    from ternarybert.training.evaluate import evaluate as run
    from ternarybert.training.models import is_embedder, label_names, trained_kind

    device, batch_size = options.device or "cpu", options.batch_size or _BATCH_SIZE
    check_device(device)
    set_threads(options.threads)
    if is_embedder(model):
        rows = load_plain_texts(data)
    else:
        rows = load_data(data, labels=lambda: label_names(model), kind=trained_kind(model))
    console = make_console(errors=True)
    console.print(describe(rows))
    with console.status("evaluating") as status:
        return run(model, rows, teacher=options.teacher, device=device, batch_size=batch_size, status=status.update)


def _evaluate_packed(model: str, data: DataOptions, options: EvaluateOptions) -> dict[str, Any]:
    from ternarybert.data.kinds import model_kind
    from ternarybert.families import HeadKind, head_kind
    from ternarybert.packed import is_packed
    from ternarybert.packed.embedder_modules import has_modules
    from ternarybert.packed.hf_folder import read_config
    from ternarybert.runtime.evaluate import evaluate as run
    from ternarybert.runtime.evaluate import label_names
    from ternarybert.runtime.installed import local_folder, model_folder

    engine, teacher = options.engine, None if options.teacher is None else str(local_folder(options.teacher))
    if teacher is not None and not is_packed(teacher):
        raise OptionError(f"the teacher '{teacher}' is not packed and needs --engine torch")
    config = read_config(model_folder(model))
    if has_modules(model) and head_kind(config) == HeadKind.NONE:
        rows = load_plain_texts(data)
    else:
        rows = load_data(data, labels=lambda: label_names(model), kind=model_kind(config))
    console = make_console(errors=True)
    console.print(describe(rows))
    with console.status("evaluating") as status:
        return run(model, rows, teacher=teacher, num_threads=options.threads, engine=engine, status=status.update)


def _submit(model: str, data: DataOptions, options: EvaluateOptions, archive: Path) -> None:
    """Add the predictions for a task's test sets to the archive."""
    from ternarybert.data.submission import check_archive
    from ternarybert.storage import lock_output

    refuse("with --submission", teacher=options.teacher, eval=data.evaluation, **data.columns)
    if data.task is None:
        raise OptionError("--submission needs a GLUE task: --task NAME")
    with lock_output(archive):  # for as long as it takes: a second run is refused at once, not after its work
        check_archive(archive)
        _add_to(archive, model, data, options)


def _add_to(archive: Path, model: str, data: DataOptions, options: EvaluateOptions) -> None:
    from ternarybert.data.submission import add_to_archive, as_submitted, load_glue_test, missing_sets

    assert data.task is not None
    rows = load_glue_test(data.task, data.data)
    if data.max_length is not None:
        rows = replace(rows, task=replace(rows.task, max_length=data.max_length))
    console = make_console(errors=True)
    console.print(describe(rows))
    with quiet(), console.status("predicting") as status:
        fitted, predictions = _predict(model, rows, options, status.update)
    present = add_to_archive(archive, as_submitted(rows.task, fitted.task, predictions))
    if options.as_json:
        print_json({"archive": str(archive), "files": present, "missing": missing_sets(present)})
    missing = missing_sets(present)
    more = f" The server also expects {', '.join(missing)}." if missing else ""
    make_console(errors=options.as_json).print(f"{archive} has {', '.join(present)}.{more}", soft_wrap=True)


def _predict(model: str, rows: Any, options: EvaluateOptions, status: Callable[[str], None]) -> tuple[Any, Any]:
    if options.engine == "torch":
        from ternarybert.training.evaluate import predict_all as run

        check_device(options.device or "cpu")
        set_threads(options.threads)
        batch_size = options.batch_size or _BATCH_SIZE
        return run(model, rows, device=options.device, batch_size=batch_size, status=status)
    from ternarybert.runtime.evaluate import predict_all as run_packed

    return run_packed(model, rows, num_threads=options.threads, engine=options.engine, status=status)


def _show(report: dict[str, Any], console: Console) -> None:
    show_scores(console, {"score": report["sets"]})
    for name, counts in report["confusion"]["sets"].items():
        if counts is not None:
            show_confusion(console, report["confusion"]["labels"], counts, name)
    console.print(f"{report['rows']:,} rows, {report['examples_per_second']:.1f} examples/s.")
