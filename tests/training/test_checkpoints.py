"""Where a training run may write, what it resumes from, and what it leaves behind."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ternarybert.errors import FolderExistsError, OutputError
from ternarybert.recipe import PRESETS
from ternarybert.training import checkpoints
from ternarybert.training.checkpoints import check_output, last_checkpoint, prepare_work, work_folder
from ternarybert.training.options import TrainingOptions
from ternarybert.training.ternarize import ternarize

from .conftest import rows

MARKER = "recipe.yaml"
PLAN = {"model": "teacher", "data": [1, 2], "seed": 42}


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out"


def model(folder):
    folder.mkdir()
    (folder / MARKER).write_text("")


def checkpoint(work, step, *, state="{}", without=()):
    folder = work / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.pt", "process_0.pt"):
        if name not in without:
            (folder / name).write_text("")
    (folder / "trainer_state.json").write_text(state)
    return str(folder)


def test_a_new_output_is_fine(output):
    check_output(output, TrainingOptions(), MARKER)
    output.mkdir()
    check_output(output, TrainingOptions(), MARKER)


def test_a_model_is_replaced_with_force_only(output):
    model(output)
    with pytest.raises(FolderExistsError, match=r"out exists.*--force"):
        check_output(output, TrainingOptions(), MARKER)
    with pytest.raises(FolderExistsError, match="nothing to resume"):
        check_output(output, TrainingOptions(resume=True), MARKER)
    check_output(output, TrainingOptions(force=True), MARKER)
    checkpoint(work_folder(output), 3)
    with pytest.raises(FolderExistsError, match="--force --resume"):
        check_output(output, TrainingOptions(resume=True), MARKER)


@pytest.mark.parametrize("settings", [TrainingOptions(), TrainingOptions(force=True), TrainingOptions(resume=True)])
def test_other_things_are_never_replaced(output, settings, tmp_path, monkeypatch):
    output.mkdir()
    (output / "thesis.txt").write_text("years of work")
    with pytest.raises(FolderExistsError, match="out") as caught:
        check_output(output, settings, MARKER)
    assert "--force" not in str(caught.value)  # it would not help
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderExistsError, match="file"):
        check_output(tmp_path / "file", settings, MARKER)
    model(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    for path in (Path(), Path(".."), tmp_path / "here"):
        with pytest.raises(OutputError, match="current folder"):
            check_output(path, settings, MARKER)


def test_unfinished_work_is_resumed_or_dropped_on_purpose(output):
    work = prepare_work(output, TrainingOptions(), PLAN)
    assert work == work_folder(output)
    (work / "history.json").write_text("{}")
    check_output(output, TrainingOptions(), MARKER)  # nothing is lost before the first checkpoint
    prepare_work(output, TrainingOptions(), PLAN | {"seed": 1})
    assert [path.name for path in work.iterdir()] == ["run.json"]
    checkpoint(work, 3)
    with pytest.raises(OutputError, match=r"out\.work.*--resume.*--force"):
        check_output(output, TrainingOptions(), MARKER)
    check_output(output, TrainingOptions(resume=True), MARKER)
    with pytest.raises(OutputError, match="different seed"):
        prepare_work(output, TrainingOptions(resume=True), PLAN)
    prepare_work(output, TrainingOptions(resume=True), PLAN | {"seed": 1})
    assert last_checkpoint(work) is not None
    prepare_work(output, TrainingOptions(force=True), PLAN)
    assert last_checkpoint(work) is None


def test_somebody_elses_folder_is_not_taken_for_work(output):
    work_folder(output).mkdir()
    (work_folder(output) / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"out\.work"):
        check_output(output, TrainingOptions(force=True), MARKER)
    with pytest.raises(OutputError, match=r"out\.work"):
        prepare_work(output, TrainingOptions(force=True), PLAN)
    assert (work_folder(output) / "notes.txt").read_text() == "mine"


def test_only_the_first_process_prepares(output, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    model(output)
    check_output(output, TrainingOptions(), MARKER)
    assert not prepare_work(output, TrainingOptions(), PLAN).exists()


def test_the_last_complete_checkpoint(tmp_path):
    assert last_checkpoint(tmp_path) is None
    second = checkpoint(tmp_path, 9)
    checkpoint(tmp_path, 10, state="{")
    checkpoint(tmp_path, "best")
    assert last_checkpoint(tmp_path) == second
    third = checkpoint(tmp_path, 11, without=("optimizer.pt",))
    with pytest.raises(OutputError, match=rf"{third}.*optimizer\.pt"):
        last_checkpoint(tmp_path)


def test_other_rows_have_another_digest(data):
    digest = checkpoints.digest(data)
    assert digest == checkpoints.digest(replace(data))
    assert digest != checkpoints.digest(replace(data, train=rows(64, start=1)))
    assert digest != checkpoints.digest(replace(data, evals={"dev": rows(20, start=7)}))


@pytest.mark.linux_only("mapped files are read from /proc")
def test_the_best_model_is_not_mapped_when_its_folder_is_removed(data, teacher, output, monkeypatch):
    """Windows does not remove a file that is mapped into memory; Linux tells whether it is."""
    maps = Path("/proc/self/maps")
    removed, remove = [], shutil.rmtree

    def watched(path, *args, **options):
        if Path(path) == work_folder(output):
            removed.append([line for line in maps.read_text().splitlines() if str(path) in line])
        remove(path, *args, **options)

    monkeypatch.setattr(shutil, "rmtree", watched)
    report = ternarize(
        teacher, data, output, PRESETS["default"], TrainingOptions(device="cpu", evaluations=1, max_steps=2)
    )
    assert removed == [[]]
    assert json.loads((output / "metrics.json").read_text())["steps"] == report.steps == 2
