"""Where a run keeps its files.

While a run lasts, everything lies in a work folder beside the output (`OUT.work`): checkpoints, the best model so far,
every evaluation. The output folder appears only when it is complete. So a run that is killed loses the steps since its
last checkpoint, and nothing half-written is ever taken for a model.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.errors import OutputError

if TYPE_CHECKING:
    from ternarybert.data.task import TaskData
    from ternarybert.training.options import TrainingOptions

PLAN = "run.json"  # what a resumed run must have in common with the one that was interrupted
_ROWS = 1000  # looked at together
_NEEDED = ("model.safetensors", "optimizer.pt", "random_state_0.pt")


def work_folder(output: Path) -> Path:
    """Where the run that will become `output` keeps its files."""
    output = by_name(output)
    return output.with_name(f"{output.name}.work")


def by_name(path: Path) -> Path:
    """A folder by a path that ends in its name, which '.' and '..' do not."""
    named = path.resolve() if path.name in ("", "..") else path
    if not named.name:
        raise OutputError(f"{path} is the root of all folders; choose another --output")
    return named


def check_output(output: Path, settings: TrainingOptions, marker: str) -> None:
    """Refuse to begin where a model, a file or another run's work would be lost; nothing is touched.

    `marker` is a file by which models of ours are known.
    """
    if process_index():
        return
    if Path.cwd().is_relative_to(by_name(output).resolve()):
        raise OutputError(f"{output} is or holds the folder you are in, and would be replaced; choose another --output")
    if os.path.lexists(output) and not (output.is_dir() and not any(output.iterdir())):
        _check_place(output, settings, marker)
    work = work_folder(output)
    if not work.exists() or not any(work.iterdir()):
        return
    if not (work / PLAN).is_file():
        raise OutputError(f"{work} would be the work folder and holds something else; choose another --output")
    if _has_checkpoint(work) and not settings.resume and not settings.force:
        raise OutputError(f"{work} holds an unfinished run; --resume continues it, --force starts anew")


def _check_place(output: Path, settings: TrainingOptions, marker: str) -> None:
    if not output.is_dir():
        raise OutputError(f"{output} is a file; choose another --output")
    if not (output / marker).is_file():
        raise OutputError(f"{output} holds something that is not a model of ours; choose another --output")
    if settings.force:
        return
    work = work_folder(output)
    what = "is complete, there is nothing to resume" if settings.resume and not work.exists() else "exists already"
    more = f" (--force --resume: from the checkpoint in {work})" if _has_checkpoint(work) else ""
    raise OutputError(f"{output} {what}; choose another --output, or --force to replace it{more}")


def prepare_work(output: Path, settings: TrainingOptions, plan: Mapping[str, Any]) -> Path:
    """The work folder, empty or, to resume, as it was left by a run with the same plan."""
    work = work_folder(output)
    if process_index():
        return work  # the first process looks after the folders; the others meet it when training begins
    if work.exists() and not (settings.resume and _has_checkpoint(work)):
        shutil.rmtree(work)
    work.mkdir(parents=True, exist_ok=True)
    wanted = json.loads(json.dumps(plan))
    if (work / PLAN).is_file():
        begun = read_json(work / PLAN)
        # The result of going on otherwise would be neither the one nor the other.
        others = [name for name in wanted if begun.get(name) != wanted[name]]
        if others:
            raise OutputError(
                f"{work} was started with a different {', '.join(others)}; "
                "repeat that command, or --force without --resume to start anew"
            )
    write_json(work / PLAN, wanted)
    return work


def digest(data: TaskData[Any]) -> str:
    """A name for the very rows of all parts: a run is not resumed on others."""
    total = hashlib.sha256()
    for part in (data.train, *data.evals.values()):
        for first in range(0, len(part or ()), _ROWS):
            total.update(repr(part[first : first + _ROWS]).encode("utf-8", "surrogatepass"))
    return total.hexdigest()[:16]


def digest_of_weights(folder: Path) -> str:
    """A name for the weights in a folder."""
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


def read_json(path: Path) -> dict[str, Any]:
    """A file of the work folder."""
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OutputError(f"{path} is damaged ({error}); --force starts anew") from error
    return value


def write_json(path: Path, value: object) -> None:
    """Write a file so that it is never seen half-written."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(json.dumps(value), encoding="utf-8")
    draft.replace(path)


def last_checkpoint(work: Path) -> str | None:
    """The newest checkpoint that was written to its end: `trainer_state.json` is what the trainer writes last."""
    found = [path for path in work.glob("checkpoint-*") if path.name.rpartition("-")[2].isdecimal()]
    for path in sorted(found, key=lambda path: int(path.name.rpartition("-")[2]), reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        gone = [name for name in _NEEDED if not (path / name).is_file()]
        if gone:
            raise OutputError(f"{path} lacks {gone[0]}; remove that folder, or --force to start anew")
        return str(path)
    return None


def take_place(made: Path, output: Path) -> None:
    """Move a finished folder to its place; an older one there goes only when the new one stands."""
    retired = output.with_name(f".{output.name}.{secrets.token_hex(4)}.old")
    if output.exists():
        output.rename(retired)
    try:
        made.rename(output)
    except OSError:
        if retired.exists():
            retired.rename(output)
        raise
    shutil.rmtree(retired, ignore_errors=True)
