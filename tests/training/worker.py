"""One process of a data-parallel run; prints nothing, leaves its latent weights in the output folder.

python tests/training/worker.py TEACHER OUT BATCH [MAX_STEPS [stop | resume | lose]]

`stop` ends after the first checkpoint, `resume` continues from it, `lose` too, but the second process sees none.
"""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import torch

from ternarybert.data import ClassificationTask, TaskData
from ternarybert.recipe import PRESETS
from ternarybert.training import export, trainer
from ternarybert.training.callbacks import TrainingCallback
from ternarybert.training.checkpoints import last_checkpoint, process_index
from ternarybert.training.options import TrainingOptions
from ternarybert.training.ternarize import ternarize
from tests.training.conftest import rows


class StopAtCheckpoint(TrainingCallback):
    def on_checkpoint(self, progress):
        sys.exit(3)


def main(teacher: str, output: str, batch: str, max_steps: str = "-1", mode: str = "") -> None:
    torch.set_num_threads(1)
    # Double precision is refused when packing. Here only the training is looked at, and the folder may be rounded.
    export.as_float32 = lambda _, values: values.astype(np.float32)
    task = ClassificationTask("made", ("text",), "label", ("neg", "pos"), ("accuracy",), max_length=32, epochs=2)
    data = TaskData(task, rows(64), {"dev": rows(20, start=100)})
    recipe = PRESETS["default"].override(
        {
            "schedule.batch_size": batch,
            "schedule.learning_rate": "1e-3",
            "schedule.dropout": "0",
            "schedule.warmup": "0",
        }
    )
    recipe = dataclasses.replace(recipe, weight=dataclasses.replace(recipe.weight, method="lat"))
    options = TrainingOptions(
        device="cpu",
        evaluations=2,
        keep_checkpoints=True,
        max_steps=int(max_steps),
        resume=mode in ("resume", "lose"),
        callbacks=(StopAtCheckpoint(),) if mode == "stop" else (),
    )
    if mode == "lose" and process_index() == 1:
        trainer.last_checkpoint = lambda _: None
    ternarize(teacher, data, output, recipe, options)
    assert last_checkpoint(Path(f"{output}.work"))


if __name__ == "__main__":
    main(*sys.argv[1:])
