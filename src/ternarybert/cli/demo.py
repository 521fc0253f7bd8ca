"""The command `demo`: makes a real model ternary and measures it beside the original."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.cli.console import RERUN, STOPPED, handle_errors, make_console, make_table, print_json, quiet
from ternarybert.cli.options import OUTPUT, JsonOption, option, set_threads, with_options
from ternarybert.storage import lock_output, named_folder

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.demo.demo import DemoFolder, DemoPlan
    from ternarybert.demo.sources import Review

EXAMPLE = (
    "Example: ternarybert demo --quick\n\nThen talk to the model: ternarybert predict ternarybert-demo-quick/ternary"
)
_DEMO = "Demo"
_BUSY = 0.9  # of a core; with less, wall-clock time measures other programs more than the model
_SENTENCES = (
    "a gripping story , beautifully told from the first frame to the last",
    "two hours of my life that nobody will give back to me",
    "the jokes are old , the plot is older , and i laughed all the way through",
    "not nearly as clever as it believes itself to be",
)


class DemoOptions(JsonOption):
    """How long the demo takes, and where it is written."""

    quick: bool = option(_DEMO, "Use fewer rows: 3 minutes on two cores instead of 12.", default=False)
    again: bool = option(_DEMO, "Train again; discards what an earlier demo left in the folder.", default=False)
    measure: bool = option(_DEMO, "Measure again, without training.", default=False)
    threads: int | None = option(_DEMO, "CPU threads of training. By default chosen by torch.", min=1)
    output: Path | None = option(
        OUTPUT,
        "Folder to write. By default ternarybert-demo, or ternarybert-demo-quick with --quick.",
        "FOLDER",
        flags="--output -o",
    )


@with_options
def demo(options: DemoOptions) -> None:
    """Make a real model ternary, compare it with the original, and try it: 12 minutes on two cores.

    Fine-tunes a small pre-trained model on film reviews, distills a ternary student, packs it and measures both.
    Weights and reviews come from two pip packages; no network is needed. You can stop at any time: the same command
    resumes.
    """
    from ternarybert.demo.demo import FULL, QUICK, DemoFolder, demo_settings
    from ternarybert.demo.sources import check_installed, encoder_folder, read_reviews, reviews_file

    plan = QUICK if options.quick else FULL
    place = DemoFolder(options.output or Path("ternarybert-demo-quick" if options.quick else "ternarybert-demo"))
    console = make_console(errors=options.as_json)
    with handle_errors(stopped=STOPPED, resume=RERUN), lock_output(named_folder(place.folder)):
        check_installed()
        if options.again:
            place.clear()
        encoder, reviews = encoder_folder(), read_reviews(reviews_file())
        kind = demo_settings(plan, encoder, reviews)
        place.check(kind)
        results = None if options.measure else place.results(kind)
        if results is None:
            results = _run(place, plan, encoder, reviews, console, options.threads)
        else:
            console.print(f"{place.folder} holds a finished demo; --again trains again, --measure only measures.")
        show_results(console, results)
        answers = _try(place, console)
        _show_next(console, place)
    if options.as_json:
        print_json(results | {"folder": str(place.folder), "answers": answers})


def _run(
    place: DemoFolder, plan: DemoPlan, encoder: Path, reviews: list[Review], console: Console, threads: int | None
) -> dict[str, Any]:
    """All steps that are not done yet."""
    from ternarybert.demo.demo import make_student, make_teacher, prepare
    from ternarybert.demo.measure import measure

    console.print(f"About {plan.minutes} minutes on two idle cores. You can stop at any time: {RERUN}.")
    prepare(place, plan, encoder, reviews)
    with quiet():
        from ternarybert.cli.training_display import TrainingDisplay

        set_threads(threads)
        done = " (done)" if place.teacher.exists() else ""
        console.print(f"1 of 3: fine-tuning the teacher, all-MiniLM-L6-v2, on film reviews{done}")
        with TrainingDisplay(console, "fine-tuning") as progress:
            make_teacher(place, plan, encoder, progress)
        done = " (done)" if place.ternary.exists() else ""
        console.print(f"2 of 3: distilling a student with weights in {{-1, 0, +1}}{done}")
        with TrainingDisplay(console, "ternarizing") as progress:
            make_student(place, plan, progress)
        console.print("3 of 3: measuring")
        with console.status("") as status:
            results = measure(place, plan, status.update if console.is_terminal else console.print)
    place.write_results(results)
    return results


def show_results(console: Console, results: dict[str, Any]) -> None:
    """The closing table, and how its numbers were measured."""
    teacher, student = results["teacher"], results["student"]
    table = make_table("", "teacher (float32, torch)", "ternary (2-2-8, native)", "")
    table.columns[-1].justify = "left"
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
        ("CPU ms per sentence", "cpu_ms", 1, "less"),
        ("memory of the process, MB", "memory", 1e6, "less"),
    )
    for name, key, unit, word in rows:
        if key == "cpu_ms" and not busy:  # on an idle machine it equals wall-clock time
            continue
        before, after = teacher[key] / unit, student[key] / unit
        table.add_row(name, f"{before:.2f}", f"{after:.2f}", _times(before / after, word))
    console.print(table)
    console.print(
        f"Accuracy on {results['rows']:,} held-out reviews (standard error {results['standard_error']:.1f}). Time from "
        f"text to scores, one sentence at a time, one thread, median, by turns; kernel {results['kernel']}."
    )
    if busy:
        console.print("Other programs kept the CPU busy; use --measure to time again when the machine is idle.")


def _times(ratio: float, word: str) -> str:
    """The ratio, whichever side it favors."""
    opposite = {"smaller": "larger", "faster": "slower", "less": "more"}
    return f"{ratio:.1f} times {word}" if ratio >= 1 else f"{1 / ratio:.1f} times {opposite[word]}"


def _try(place: DemoFolder, console: Console) -> list[dict[str, Any]]:
    """The student's answers to a few sentences."""
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
        f"Try it:     ternarybert predict {place.ternary}",
        f"Look inside:    ternarybert inspect {place.ternary} --against {place.teacher}",
        "Your own data:  ternarybert finetune MODEL --train FILE, then ternarybert ternarize MODEL-FILE --train FILE",
    ):
        console.print(line, soft_wrap=True)
