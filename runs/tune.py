"""Which setting helps a student most: short runs on some training rows of a task, evaluated on others.

The dev set is not used. The teacher was trained on all training rows, so its own score here is optimistically biased;
what counts is how close its students come. The findings are in docs/development/log.md.

Every student is a folder; a finished one is not repeated, an interrupted one resumes from its last checkpoint. Teachers
are those of runs/glue.py with the same `--out`.

    python runs/tune.py GLUE_FOLDER [--out runs/out] [--task stsb] [--rows 3000] [--held-out 1000] [--cells base lat]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import glue
from glue import common_options, log, settings, user_errors

from ternarybert.data import ClassificationTask, TaskData
from ternarybert.recipe import PRESETS, Recipe

SEED = 42
BASE = {"schedule.epochs": "3"}  # half of what `default` takes
CELLS: dict[str, dict[str, str]] = {
    "base": {},
    "attention-0.1": {"distill.attention": "0.1"},
    "attention-0.01": {"distill.attention": "0.01"},
    "attention-0": {"distill.attention": "false"},
    "row-scales": {"weight.granularity": "row"},
    "two-stages": {"stages": "[{share: 0.5, terms: [hidden, attention]}, {share: 0.5}]"},
    "lat": {"weight.method": "lat", "embedding.method": "lat"},
    "rate-1e-4": {"schedule.learning_rate": "1e-4"},
    "rate-4e-4": {"schedule.learning_rate": "4e-4"},
    "epochs-6": {"schedule.epochs": "6"},
}


def recipe_of(cell: str) -> Recipe:
    """The recipe `default`, shortened, with the change of the cell."""
    return PRESETS["default"].override(BASE | CELLS[cell])


def data_of(options: argparse.Namespace) -> TaskData[ClassificationTask]:
    """Rows for training and rows for evaluation, all from the training set."""
    data = glue.data_of(options.task, options.glue)
    assert data.train is not None
    rows = data.train.shuffle(seed=SEED)
    held_out = rows.select(range(options.held_out))
    train = rows.select(range(options.held_out, min(len(rows), options.held_out + options.rows)))
    return TaskData(data.task, train, {"held-out": held_out})


def run(options: argparse.Namespace) -> None:
    """Make the students that do not exist yet."""
    from ternarybert.training.ternarize import ternarize

    folder, data = Path(options.out), data_of(options)
    for cell in options.cells:
        output = folder / f"tune-{options.task}" / cell
        if not output.exists():
            log(f"{options.task}: {cell}")
            chosen = settings(output, seed=SEED, bf16=options.bf16, evaluations=3)
            ternarize(str(folder / options.task / "teacher"), data, output, recipe_of(cell), chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("glue", help="folder with the GLUE tasks in their original layout")
    parser.add_argument("--task", default="stsb", choices=glue.TASKS)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--held-out", type=int, default=1000)
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), default=list(CELLS))
    common_options(parser)
    options = parser.parse_args()
    if not options.table:
        import torch

        torch.set_num_threads(options.threads)
        run(options)
    print(glue.table(Path(options.out), [f"tune-{options.task}"]))


if __name__ == "__main__":
    with user_errors():
        main()
