"""The demo: its two sizes, its folder, and the steps that fill it. A step that is done is not repeated.

    reviews.csv reviews-dev.csv reviews-test.csv    the rows, in the format of a user's own table
    teacher/                                        the fine-tuned model, a plain Hugging Face folder
    ternary/                                        the packed student
    results.json                                    the measurements
    demo.json                                       the settings of this demo

An interrupted run leaves `teacher.work` or `student.work`, from which the next run resumes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert import packed
from ternarybert.demo.sources import Review, split, write_reviews
from ternarybert.errors import OutputError
from ternarybert.recipe import PRESETS, Recipe, Schedule
from ternarybert.storage import check_claim, claim_folder, read_json, release_folder, write_json

if TYPE_CHECKING:
    from ternarybert.training.options import TrainingOptions


@dataclass(frozen=True)
class DemoPlan:
    """Rows, epochs and timing; everything else is the default of `finetune` and `ternarize`."""

    name: str
    minutes: int  # on two idle cores, as shown to the user
    train_rows: int
    dev_rows: int
    test_rows: int
    teacher_epochs: float
    student_epochs: float
    evaluations: int
    sentences: int = 50  # timed one by one
    rounds: int = 7  # of timing, in turns

    def recipe(self) -> Recipe:
        """The default recipe, with the plan's number of epochs."""
        return PRESETS["default"].override({"schedule.epochs": self.student_epochs})

    def teacher_recipe(self, schedule: Schedule) -> Recipe:
        """A recipe for fine-tuning, which uses only the schedule."""
        return Recipe(schedule=schedule).override({"schedule.epochs": self.teacher_epochs})

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


ALL = 1_000_000
FULL = DemoPlan("full", 12, 5_000, 400, ALL, teacher_epochs=2, student_epochs=3, evaluations=5)
QUICK = DemoPlan("quick", 3, 1_600, 200, 600, teacher_epochs=2, student_epochs=2, evaluations=2, rounds=5)

_MARKER, _RESULTS = "demo.json", "results.json"
_SEED = 42
_ADVICE = "choose another --output, or use --again to start over"


@dataclass(frozen=True)
class DemoFolder:
    """The folder of a demo and the paths in it."""

    folder: Path

    @property
    def train(self) -> Path:
        """Training rows."""
        return self.folder / "reviews.csv"

    @property
    def dev(self) -> Path:
        """Rows on which the best checkpoint is chosen."""
        return self.folder / "reviews-dev.csv"

    @property
    def test(self) -> Path:
        """Rows that are used for nothing but the final scores."""
        return self.folder / "reviews-test.csv"

    @property
    def teacher(self) -> Path:
        """The fine-tuned model."""
        return self.folder / "teacher"

    @property
    def student(self) -> Path:
        """The output of `ternarize`, removed once it is packed densely."""
        return self.folder / "student"

    @property
    def ternary(self) -> Path:
        """The packed student."""
        return self.folder / "ternary"

    @property
    def owned(self) -> list[str]:
        """All files and folders that the demo writes, besides its marker."""
        folders = [path.name for path in (self.teacher, self.student, self.ternary)]
        files = [path.name for path in (self.train, self.dev, self.test)]
        return [*folders, *(f"{name}.work" for name in folders), *files, _RESULTS]

    def check(self, settings: dict[str, Any]) -> None:
        """Reject a folder with other content or a demo with other settings; nothing is changed."""
        check_claim(self.folder, _MARKER, settings, advice=_ADVICE)

    def results(self, settings: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """The measurements of an earlier run with these settings, or with any; None if there are none."""
        made_with = _read_json(self.folder / _MARKER)
        return _read_json(self.folder / _RESULTS) if made_with and settings in (None, made_with) else None

    def write_results(self, results: dict[str, Any]) -> None:
        """Store the measurements."""
        write_json(self.folder / _RESULTS, results, indent=1)

    def clear(self) -> None:
        """Remove the files of an earlier demo, and nothing else."""
        if (self.folder / _MARKER).is_file():
            release_folder(self.folder, _MARKER, self.owned)


def demo_settings(plan: DemoPlan, encoder: Path, reviews: Sequence[Review]) -> dict[str, Any]:
    """The settings of a demo; only a run with the same settings may continue in its folder."""
    return {"plan": plan.as_dict(), "encoder": encoder.name, "reviews": len(reviews)}


def prepare(demo: DemoFolder, plan: DemoPlan, encoder: Path, reviews: Sequence[Review]) -> None:
    """Claim the folder and write the tables."""
    settings = demo_settings(plan, encoder, reviews)
    claim_folder(demo.folder, _MARKER, settings, owned=demo.owned, advice=_ADVICE)
    parts = zip((demo.train, demo.dev, demo.test), (plan.train_rows, plan.dev_rows, plan.test_rows), strict=True)
    for (path, rows), part in zip(parts, split(reviews), strict=True):
        write_reviews(path, part[:rows])


def make_teacher(demo: DemoFolder, plan: DemoPlan, encoder: Path, *callbacks: Any) -> None:
    """Fine-tune the encoder, unless that is done."""
    if demo.teacher.exists():
        return
    from ternarybert.data import load_table
    from ternarybert.training.finetune import SCHEDULE, finetune

    data = load_table(demo.train, demo.dev)
    options = _options(plan, demo.teacher, callbacks)
    with _suggest_again():
        finetune(str(encoder), data, demo.teacher, plan.teacher_recipe(SCHEDULE), options)


def make_student(demo: DemoFolder, plan: DemoPlan, *callbacks: Any) -> None:
    """Ternarize the teacher and pack the result densely, unless that is done."""
    if demo.ternary.exists():
        return
    if not demo.student.exists():
        from ternarybert.data import load_table
        from ternarybert.training.models import label_names
        from ternarybert.training.ternarize import ternarize

        data = load_table(demo.train, demo.dev, labels=label_names(str(demo.teacher)))
        options = _options(plan, demo.student, callbacks)
        with _suggest_again():
            ternarize(str(demo.teacher), data, demo.student, plan.recipe(), options)
    pack_densely(demo.student, demo.ternary)
    shutil.rmtree(demo.student)


def pack_densely(source: Path, output: Path) -> None:
    """Pack a model with five ternary weights per byte instead of four, as `ternarybert pack --dense` does."""
    from ternarybert.packed.hf_folder import repack, tokenizer_files
    from ternarybert.training.card import read_metadata
    from ternarybert.training.export import model_card
    from ternarybert.training.report import RunReport

    model = repack(packed.read(source), "dense")
    card = model_card(output.name, model, RunReport.from_dict(model.metrics), read_metadata(source)).encode()
    files: dict[str, bytes | Path] = {
        **tokenizer_files(source),
        "recipe.yaml": source / "recipe.yaml",
        "README.md": card,
    }
    packed.write(output, model, extra_files=files)


@contextmanager
def _suggest_again() -> Iterator[None]:
    """Suggest --again where training suggests --force, an option that the demo does not have."""
    try:
        yield
    except OutputError as error:
        raise OutputError(f"{str(error).partition('; ')[0]}; --again starts over") from error


def _options(plan: DemoPlan, output: Path, callbacks: Sequence[Any]) -> TrainingOptions:
    from ternarybert.training.checkpoints import work_folder
    from ternarybert.training.options import TrainingOptions

    resume = work_folder(output).exists()
    return TrainingOptions(
        seed=_SEED, device="cpu", evaluations=plan.evaluations, resume=resume, callbacks=tuple(callbacks)
    )


def _read_json(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None if there is no file, or no object in it."""
    with suppress(OSError, OutputError):
        return read_json(path)
    return None
