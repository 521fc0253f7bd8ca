"""The demo's folder and how it fills: tables, teacher, student, figures. What is there is not made again.

    reviews.csv reviews-dev.csv reviews-test.csv    the rows, as a user's own table would be
    teacher/                                        the fine-tuned model, a plain Hugging Face folder
    ternary/                                        the packed student
    results.json                                    what was measured
    demo.json                                       what all of it was made with

A run that was stopped leaves `teacher.work` or `student.work`, from which the next one goes on.

MERGED-DOCS:
How much the demo does. Two sizes: one to be convinced, one to have seen it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert import packed
from ternarybert.demo.sources import Review, split, write_csv
from ternarybert.errors import OutputError
from ternarybert.recipe import PRESETS, Recipe, Schedule

if TYPE_CHECKING:
    from ternarybert.training.options import TrainingOptions


@dataclass(frozen=True)
class Plan:
    """Rows, passes over them, and how long to time; all else is as `finetune` and `ternarize` do it by default."""

    name: str
    minutes: int  # on two idle cores, to be announced
    train_rows: int
    dev_rows: int
    test_rows: int
    teacher_epochs: float
    student_epochs: float
    evaluations: int
    sentences: int = 50  # timed one by one
    rounds: int = 7  # by turns

    def recipe(self) -> Recipe:
        """The default recipe, with the plan's number of epochs."""
        return PRESETS["default"].override({"schedule.epochs": self.student_epochs})

    def teacher_recipe(self, schedule: Schedule) -> Recipe:
        """Of the teacher only the schedule counts."""
        return Recipe(schedule=schedule).override({"schedule.epochs": self.teacher_epochs})

    def as_dict(self) -> dict[str, Any]:
        """For a note of what a folder was made with."""
        return asdict(self)


ALL = 1_000_000
FULL = Plan("full", 12, 5_000, 400, ALL, teacher_epochs=2, student_epochs=3, evaluations=5)
QUICK = Plan("quick", 3, 1_600, 200, 600, teacher_epochs=2, student_epochs=2, evaluations=2, rounds=5)


_MARKER, _RESULTS = "demo.json", "results.json"
_SEED = 42


@dataclass(frozen=True)
class Place:
    """The demo's folder by the names of its parts."""

    folder: Path

    @property
    def train(self) -> Path:
        """Rows to learn from."""
        return self.folder / "reviews.csv"

    @property
    def dev(self) -> Path:
        """Rows by which the best of a run is chosen."""
        return self.folder / "reviews-dev.csv"

    @property
    def test(self) -> Path:
        """Rows that nothing was chosen by."""
        return self.folder / "reviews-test.csv"

    @property
    def teacher(self) -> Path:
        """The fine-tuned model."""
        return self.folder / "teacher"

    @property
    def student(self) -> Path:
        """What `ternarize` writes, until it is packed densely."""
        return self.folder / "student"

    @property
    def ternary(self) -> Path:
        """The packed student."""
        return self.folder / "ternary"

    def check(self, made_with: dict[str, Any]) -> None:
        """Refuse a folder of something else, or of a demo of another kind; nothing is touched."""
        marker = self.folder / _MARKER
        if marker.is_file():
            if _read_json(marker) not in (None, made_with):
                raise OutputError(f"{self.folder} holds a demo of another kind; choose another --output, or --again")
        elif self.folder.exists() and not (self.folder.is_dir() and not any(self.folder.iterdir())):
            raise OutputError(f"{self.folder} holds something else; choose another --output")

    def results(self, made_with: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """What an earlier run of the same kind, or of any, measured, if one came so far."""
        kind = _read_json(self.folder / _MARKER)
        return _read_json(self.folder / _RESULTS) if kind and made_with in (None, kind) else None

    def keep(self, results: dict[str, Any]) -> None:
        """Write down what was measured."""
        _write_json(self.folder / _RESULTS, results)

    def forget(self) -> None:
        """Remove what a demo made here; nothing else, and nothing where there was none."""
        marker = self.folder / _MARKER
        if not marker.is_file():
            return
        _write_json(marker, None)  # the folder stays the demo's, even if someone put other things into it
        folders = (self.teacher, self.student, self.ternary)
        for folder in (*folders, *(folder.with_name(f"{folder.name}.work") for folder in folders)):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self.train, self.dev, self.test, self.folder / _RESULTS):
            file.unlink(missing_ok=True)


def made_with(plan: Plan, encoder: Path, reviews: Sequence[Review]) -> dict[str, Any]:
    """What demos of one kind have in common."""
    return {"plan": plan.as_dict(), "encoder": encoder.name, "reviews": len(reviews)}


def prepare(place: Place, plan: Plan, encoder: Path, reviews: Sequence[Review]) -> None:
    """Write the tables, or find those of an earlier run with the same plan."""
    kind = made_with(plan, encoder, reviews)
    place.check(kind)
    place.folder.mkdir(parents=True, exist_ok=True)
    _write_json(place.folder / _MARKER, kind)
    parts = zip((place.train, place.dev, place.test), (plan.train_rows, plan.dev_rows, plan.test_rows), strict=True)
    for (path, rows), part in zip(parts, split(reviews), strict=True):
        write_csv(path, part[:rows])


def make_teacher(place: Place, plan: Plan, encoder: Path, *callbacks: Any) -> None:
    """Fine-tune the encoder, unless that is done."""
    if place.teacher.exists():
        return
    from ternarybert.data import load_table
    from ternarybert.training.finetune import SCHEDULE, finetune

    data = load_table(place.train, place.dev)
    settings = _settings(plan, place.teacher, callbacks)
    with _advising_again():
        finetune(str(encoder), data, place.teacher, plan.teacher_recipe(SCHEDULE), settings)


def make_student(place: Place, plan: Plan, *callbacks: Any) -> None:
    """Ternarize the teacher and pack the result densely, unless that is done."""
    if place.ternary.exists():
        return
    if not place.student.exists():
        from ternarybert.data import load_table
        from ternarybert.training.models import label_names
        from ternarybert.training.ternarize import ternarize

        data = load_table(place.train, place.dev, labels=label_names(str(place.teacher)))
        settings = _settings(plan, place.student, callbacks)
        with _advising_again():
            ternarize(str(place.teacher), data, place.student, plan.recipe(), settings)
    pack_densely(place.student, place.ternary)
    shutil.rmtree(place.student)


def pack_densely(source: Path, output: Path) -> None:
    """The same model with five ternary weights a byte instead of four, as `ternarybert pack --dense` writes it."""
    from ternarybert.packed.hf_folder import repack, tokenizer_files
    from ternarybert.training.export import model_card
    from ternarybert.training.report import RunReport

    model = repack(packed.read(source), "dense")
    card = model_card(output.name, model, RunReport.from_dict(model.metrics)).encode()
    files: dict[str, bytes | Path] = {
        **tokenizer_files(source),
        "recipe.yaml": source / "recipe.yaml",
        "README.md": card,
    }
    packed.write(output, model, extra_files=files)


@contextmanager
def _advising_again() -> Iterator[None]:
    """Unfinished work that cannot be gone on with: the advice is the demo's own, which has no --force."""
    try:
        yield
    except OutputError as error:
        raise OutputError(f"{str(error).partition('; ')[0]}; --again starts anew") from error


def _settings(plan: Plan, output: Path, callbacks: Sequence[Any]) -> TrainingOptions:
    from ternarybert.training.checkpoints import work_folder
    from ternarybert.training.options import TrainingOptions

    begun = work_folder(output).exists()
    return TrainingOptions(
        seed=_SEED, device="cpu", evaluations=plan.evaluations, resume=begun, callbacks=tuple(callbacks)
    )


def _read_json(path: Path) -> dict[str, Any] | None:
    """What is in a file; None where there is none, or nothing of use."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _write_json(path: Path, value: object) -> None:
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(json.dumps(value, indent=1), encoding="utf-8")
    draft.replace(path)
