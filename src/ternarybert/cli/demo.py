"""The command `demo`: a real model becomes ternary before the user's eyes, and is measured beside the original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.console import job, make_console, quiet
from ternarybert.cli.options import option

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.demo.demo import DemoFolder, DemoPlan
    from ternarybert.demo.sources import Review

DEMO_EXAMPLE = (
    "Example: ternarybert demo --quick\n\nThen talk to the model: ternarybert predict ternarybert-demo-quick/ternary"
)
_STOPPED = "stopped; the same command goes on from here"
_BUSY = 0.9  # with less of a core than this, the clock says more about other programs than about the model
_SENTENCES = (
    "a gripping story , beautifully told from the first frame to the last",
    "two hours of my life that nobody will give back to me",
    "the jokes are old , the plot is older , and i laughed all the way through",
    "not nearly as clever as it believes itself to be",
)


def demo(
    output: Annotated[
        Path | None,
        option("--output", "-o", help="Folder; else ternarybert-demo[-quick].", panel="Output", metavar="FOLDER"),
    ] = None,
    quick: Annotated[
        bool, option("--quick", help="3 minutes on two cores instead of 12, with fewer rows.", panel="Demo")
    ] = False,
    again: Annotated[
        bool, option("--again", help="Train anew; drops what an earlier demo left in the folder.", panel="Demo")
    ] = False,
    measure: Annotated[bool, option("--measure", help="Measure anew, without training.", panel="Demo")] = False,
    threads: Annotated[
        int | None, option("--threads", help="Processor threads of training.", panel="Demo", min=1)
    ] = None,
    as_json: Annotated[
        bool, option("--json", help="Print the result as one JSON object, last.", panel="Output")
    ] = False,
) -> None:
    """Make a real model ternary, compare it with the original, and try it: 12 minutes on two cores.

    Fine-tunes a small pre-trained model on film reviews, distils a ternary student from it, packs it and measures both.
    Weights and reviews come from two pip packages; no network is needed. Can be stopped and started at any time, and
    what is there is not made again.
    """
    from ternarybert.demo.demo import FULL, QUICK, DemoFolder, demo_settings
    from ternarybert.demo.sources import check_installed, encoder_folder, read_reviews, reviews_file

    plan = QUICK if quick else FULL
    place = DemoFolder(output or Path("ternarybert-demo-quick" if quick else "ternarybert-demo"))
    console = make_console(errors=as_json)
    with job(stopped=_STOPPED):
        check_installed()
        if again:
            place.clear()
        encoder, reviews = encoder_folder(), read_reviews(reviews_file())
        kind = demo_settings(plan, encoder, reviews)
        place.check(kind)
        results = None if measure else place.results(kind)
        if results is None:
            results = _run(place, plan, encoder, reviews, console, threads)
        else:
            console.print(f"{place.folder} holds a finished demo; --again trains anew, --measure only measures.")
        show_results(console, results)
        answers = _try(place, console)
        _show_next(console, place)
    if as_json:
        typer.echo(json.dumps(results | {"folder": str(place.folder), "answers": answers}))


def _run(
    place: DemoFolder, plan: DemoPlan, encoder: Path, reviews: list[Review], console: Console, threads: int | None
) -> dict[str, Any]:
    """All steps that are not done yet; each says what it does."""
    from ternarybert.demo.demo import make_student, make_teacher, prepare
    from ternarybert.demo.measure import measure

    console.print(f"About {plan.minutes} minutes on two idle cores. Stop at any time: {_STOPPED.partition('; ')[2]}.")
    prepare(place, plan, encoder, reviews)
    with quiet():
        from ternarybert.cli.console import ShowProgress

        if threads is not None:
            import torch

            torch.set_num_threads(threads)
        done = " (done)" if place.teacher.exists() else ""
        console.print(f"1 of 3: fine-tuning the teacher, all-MiniLM-L6-v2, on film reviews{done}")
        with ShowProgress(console, "fine-tuning") as progress:
            make_teacher(place, plan, encoder, progress)
        done = " (done)" if place.ternary.exists() else ""
        console.print(f"2 of 3: distilling a student with weights in {{-1, 0, +1}}{done}")
        with ShowProgress(console, "ternarizing") as progress:
            make_student(place, plan, progress)
        console.print("3 of 3: measuring")
        with console.status("") as status:
            results = measure(place, plan, status.update if console.is_terminal else console.print)
    place.write_results(results)
    return results


def show_results(console: Console, results: dict[str, Any]) -> None:
    """The closing table, and how its numbers came about."""
    from rich import box
    from rich.table import Table

    teacher, student = results["teacher"], results["student"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(("", "teacher (float32, torch)", "ternary (2-2-8, native)", "")):
        table.add_column(name, justify="right" if i in (1, 2) else "left")
    table.add_row(
        "accuracy",
        f"{teacher['accuracy']:.1f} %",
        f"{student['accuracy']:.1f} %",
        f"{student['accuracy'] - teacher['accuracy']:+.1f} points",
    )
    busy = min(one["cpu_ms"] / one["ms"] for one in (teacher, student)) < _BUSY
    rows = (
        ("weights, MB", "bytes", 1e6, "smaller"),
        ("ms per sentence", "ms", 1, "faster"),
        ("of the processor", "cpu_ms", 1, "less"),
        ("memory of the process, MB", "memory", 1e6, "less"),
    )
    for name, key, unit, word in rows:
        if key == "cpu_ms" and not busy:  # on a quiet machine it is the time by the clock
            continue
        before, after = teacher[key] / unit, student[key] / unit
        table.add_row(name, f"{before:.2f}", f"{after:.2f}", _times(before / after, word))
    console.print(table)
    console.print(
        f"Accuracy on {results['rows']:,} held-out reviews (standard error {results['standard_error']:.1f}); time for "
        f"one sentence after the other, text to scores, one thread, medians by turns; kernel {results['kernel']}."
    )
    if busy:
        console.print("Other programs kept the processor busy meanwhile; --measure times again, in a quiet moment.")


def _times(ratio: float, word: str) -> str:
    """The ratio, whichever side it favours."""
    opposite = {"smaller": "larger", "faster": "slower", "less": "more"}
    return f"{ratio:.1f} times {word}" if ratio >= 1 else f"{1 / ratio:.1f} times {opposite[word]}"


def _try(place: DemoFolder, console: Console) -> list[dict[str, Any]]:
    """Let the student answer a few sentences."""
    from ternarybert.cli.format import as_line
    from ternarybert.runtime import load

    with load(place.ternary) as model:
        answers = model.predict(list(_SENTENCES))
    console.print("\nIts answers:")
    for text, answer in zip(_SENTENCES, answers, strict=True):
        console.print("  " + as_line(text, answer).expandtabs(10))
    return [{"text": text, **answer.as_dict()} for text, answer in zip(_SENTENCES, answers, strict=True)]


def _show_next(console: Console, place: DemoFolder) -> None:
    for line in (
        f"\nThe model is in {place.ternary}, its teacher in {place.teacher}, the reviews in {place.train}.",
        f"Talk to it:     ternarybert predict {place.ternary}",
        f"Look inside:    ternarybert inspect {place.ternary} --against {place.teacher}",
        "Your own data:  ternarybert finetune MODEL --train FILE, then ternarybert ternarize (docs/how-to/own-data.md)",
    ):
        console.print(line, soft_wrap=True)
