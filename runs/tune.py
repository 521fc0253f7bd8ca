"""Which setting helps a student most: short runs on part of a task's training rows, judged on others of them.

The dev set is never looked at. The teacher has seen all training rows, so its own score here is flattered; what counts
is how near its students come to it. What was found is in docs/log.md.

Every student is a folder; a finished one is not made again, an interrupted one goes on from its last checkpoint.
Teachers are those of runs/glue.py with the same `--out`.

    python runs/tune.py GLUE_FOLDER [--out runs/out] [--task stsb] [--rows 3000] [--held-out 1000] [--cells base lat]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import glue
from glue import common_options, mistakes, say, settings

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
    """`default`, shorter, with the one thing that the cell changes."""
    return PRESETS["default"].override(BASE | CELLS[cell])


def data_of(options: argparse.Namespace) -> TaskData[ClassificationTask]:
    """Rows to train on and rows to judge by, all from the training set."""
    data = glue.data_of(options.task, options.glue)
    assert data.train is not None
    rows = data.train.shuffle(seed=SEED)
    held_out = rows.select(range(options.held_out))
    train = rows.select(range(options.held_out, min(len(rows), options.held_out + options.rows)))
    return TaskData(data.task, train, {"held-out": held_out})


def run(options: argparse.Namespace) -> None:
    """Whatever is not there yet."""
    from ternarybert.training.ternarize import ternarize

    place, data = Path(options.out), data_of(options)
    for cell in options.cells:
        output = place / f"tune-{options.task}" / cell
        if not output.exists():
            say(f"{options.task}: {cell}")
            chosen = settings(output, seed=SEED, bf16=options.bf16, evaluations=3)
            ternarize(str(place / options.task / "teacher"), data, output, recipe_of(cell), chosen)


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
    with mistakes():
        main()
