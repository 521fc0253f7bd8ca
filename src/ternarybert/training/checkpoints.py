"""The work folder of a training run: checkpoints, the best model so far, every evaluation.

It lies beside the output (`OUT.work`); the output folder appears only when it is complete. So a run that is killed
loses the steps since its last checkpoint, and no half-written model is ever found. A run is resumed only with the same
plan: the same weights and rows (by their digests), recipe and settings.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.errors import OutputError
from ternarybert.storage import check_output_folder, claim_folder, is_vacant, lock_output, named_folder

if TYPE_CHECKING:
    from ternarybert.data.task import TaskData
    from ternarybert.training.options import TrainingOptions

PLAN = "run.json"  # what a resumed run must have in common with the one that was interrupted
STATE = "trainer_state.json"  # the file of a checkpoint that is written last
_ROWS = 1000  # hashed together
_RESTART = "repeat that command, or use --force without --resume to start over"


def work_folder(output: Path) -> Path:
    """The work folder of the run that makes `output`."""
    output = named_folder(output)
    return output.with_name(f"{output.name}.work")


@contextmanager
def locked_run(output: Path) -> Iterator[None]:
    """Refuse to train where another run does; the first of several processes locks for all."""
    if process_index():
        yield
        return
    with lock_output(named_folder(output)):
        yield


def check_output(output: Path, settings: TrainingOptions, marker: str) -> None:
    """Refuse to start where a model, a file or another run's work would be lost; nothing is touched.

    `marker` is a file that every output of this command has.
    """
    if process_index():
        return
    if Path.cwd().is_relative_to(named_folder(output).resolve()):
        raise OutputError(f"{output} is or holds the current folder, and would be replaced; choose another --output")
    work, is_ours = work_folder(output), (output / marker).is_file()
    check_output_folder(output, replaceable=settings.force and is_ours, advice=_advice(work, settings, is_ours))
    if is_vacant(work):
        return
    if not (work / PLAN).is_file():
        raise OutputError(f"{work} would be the work folder, and holds something else; choose another --output")
    if _has_checkpoint(work) and not settings.resume and not settings.force:
        raise OutputError(f"{work} holds an unfinished run; use --resume to continue it, or --force to start over")


def _advice(work: Path, settings: TrainingOptions, is_ours: bool) -> str:
    if not is_ours:
        return "it was not written by this command; choose another --output"
    done = "it is complete, there is nothing to resume; " if settings.resume and not work.exists() else ""
    more = f" (--force --resume: from the checkpoint in {work})" if _has_checkpoint(work) else ""
    return f"{done}choose another --output, or use --force to replace it{more}"


def prepare_work(output: Path, settings: TrainingOptions, plan: Mapping[str, Any]) -> Path:
    """The work folder: empty, or to resume, as a run with the same plan left it."""
    work = work_folder(output)
    if process_index() == 0:  # the first process prepares the folder; the others wait for it
        start_over = not (settings.resume and _has_checkpoint(work))
        claim_folder(work, PLAN, plan, force=start_over, advice=_RESTART)
    return work


def digest(data: TaskData[Any]) -> str:
    """A hash of all rows: a run is not resumed on other data."""
    total = hashlib.sha256()
    for part in (data.train, *data.evals.values()):
        for first in range(0, len(part or ()), _ROWS):
            total.update(repr(part[first : first + _ROWS]).encode("utf-8", "surrogatepass"))
    return total.hexdigest()[:16]


def digest_of_weights(folder: Path) -> str:
    """A hash of the weights in a folder."""
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                total.update(block)
    return total.hexdigest()[:16]


def _has_checkpoint(work: Path) -> bool:
    return any(work.glob("checkpoint-*"))


def process_index() -> int:
    """Which of several processes this is, as torchrun counts them."""
    return int(os.environ.get("RANK", "0"))


def processes() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_file(process: int) -> str:
    """The file of a checkpoint with what each process has of its own: random state, and losses since the last log."""
    return f"process_{process}.pt"


def last_checkpoint(work: Path) -> str | None:
    """The newest complete checkpoint: `trainer_state.json` is what the trainer writes last."""
    folders = [path for path in work.glob("checkpoint-*") if path.name.rpartition("-")[2].isdecimal()]
    for path in sorted(folders, key=lambda path: int(path.name.rpartition("-")[2]), reverse=True):
        try:
            json.loads((path / STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        needed = ("model.safetensors", "optimizer.pt", process_file(0))
        missing = [name for name in needed if not (path / name).is_file()]
        if missing:
            raise OutputError(f"{path} lacks {missing[0]}; remove that folder, or use --force to start over")
        return str(path)
    return None
