"""Outputs are claimed, written whole, resumed and replaced; nothing of the user's is lost."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from ternarybert import storage
from ternarybert.errors import FolderExistsError, OutputError
from ternarybert.storage import (
    ResumableFile,
    check_claim,
    check_not_input,
    check_output_file,
    check_output_folder,
    claim_file,
    claim_folder,
    install_folder,
    lock_output,
    named_folder,
    read_json,
    release_folder,
    replace_file,
    replace_folder,
    write_json,
)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# --- JSON files ------------------------------------------------------------------------------------------------


def test_json_files_are_replaced_in_one_step(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_json(path, {"é": 1})
    assert read_json(path) == {"é": 1}

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_json(path, {"é": 2})
    assert read_json(path) == {"é": 1}


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_damaged_json_is_named(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(OutputError, match=re.escape(str(tmp_path / "x.json")) + ".*--again"):
        read_json(tmp_path / "x.json", advice="--again")


# --- folders that are made in one go ---------------------------------------------------------------------------


def test_folders_that_may_be_written_to(tmp_path):
    check_output_folder(tmp_path / "new", replaceable=False)
    (tmp_path / "empty").mkdir()
    check_output_folder(tmp_path / "empty", replaceable=False)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "model").write_text("x")
    with pytest.raises(FolderExistsError, match=r"full.*--output.*--force"):
        check_output_folder(tmp_path / "full", replaceable=False)
    check_output_folder(tmp_path / "full", replaceable=True)
    (tmp_path / "full" / "report").mkdir()
    (tmp_path / "full" / "report" / "report.html").write_text("x")
    check_output_folder(tmp_path / "full", replaceable=True)
    (tmp_path / "full" / "thesis").mkdir()
    with pytest.raises(FolderExistsError, match="'thesis'"):
        check_output_folder(tmp_path / "full", replaceable=True)
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    for name in ("link", "file"):
        with pytest.raises(FolderExistsError, match=name):
            check_output_folder(tmp_path / name, replaceable=True)


def test_a_link_to_an_empty_folder_is_no_output(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    with pytest.raises(FolderExistsError, match="link"):
        claim_folder(tmp_path / "link", "plan.json", {"seed": 1})
    assert not list((tmp_path / "empty").iterdir())


def test_a_refused_folder_is_one_kind_of_error(tmp_path):
    """Callers catch `OutputError` for all of them."""
    (tmp_path / "x").write_text("")
    with pytest.raises(OutputError):
        check_output_folder(tmp_path, replaceable=False)
    with pytest.raises(FileExistsError):
        check_output_folder(tmp_path, replaceable=False)


def test_names_of_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert named_folder(Path("x/y")) == Path("x/y")
    assert named_folder(Path("x/..")).name == named_folder(Path()).name == tmp_path.name
    with pytest.raises(OutputError, match="/"):
        named_folder(Path("/"))


def test_the_folder_that_is_read_is_not_written_to(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(FolderExistsError, match="link"):
        check_not_input(tmp_path, tmp_path / "link")
    check_not_input(tmp_path, tmp_path / "nothing")


def test_a_folder_is_replaced_when_the_new_one_is_complete(tmp_path):
    folder, checks = tmp_path / "deep" / "out", []
    for text in ("old", "new"):
        with replace_folder(folder, lambda: checks.append(1)) as staging:
            (staging / "x").write_text(text)
            assert not folder.exists() or (folder / "x").read_text() == "old"
        assert (folder / "x").read_text() == text
        assert os.listdir(folder.parent) == ["out"]
    assert len(checks) == 4  # before and after the work


def test_a_failure_leaves_the_old_folder_and_nothing_else(tmp_path):
    (tmp_path / "out").mkdir()
    for error in (ValueError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(error)), replace_folder(tmp_path / "out", lambda: None) as staging:
            (staging / "x").write_text("half")
            raise error
    with pytest.raises(OutputError, match=r"out.*No space left"), replace_folder(tmp_path / "out", lambda: None):
        raise OSError(28, "No space left on device")
    assert os.listdir(tmp_path) == ["out"]


def test_a_failing_install_puts_the_old_folder_back(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_exchange", lambda *_: False)
    for name in ("made", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    rename = Path.rename

    def refuse(self, target):
        if self.name == "made":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="Input/output"):
        install_folder(tmp_path / "made", tmp_path / "out")
    assert (tmp_path / "out" / "x").read_text() == "out"


@pytest.mark.parametrize("exchange", [storage._exchange, lambda *_: False])
def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path, monkeypatch, exchange):
    """Killed where the old folder has another name and the new one not yet its own: then the old one comes back."""
    monkeypatch.setattr(storage, "_exchange", exchange)
    out = tmp_path / "out"
    for name in (".out.01234567.new", ".out.01234567.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    (tmp_path / ".out.thesis.new").write_text("mine")
    with lock_output(out):
        assert (out / "x").read_text() == ".out.01234567.old"
    for name in (".out.89abcdef.new", ".out.89abcdef.old"):
        (tmp_path / name).mkdir()
    with lock_output(out):
        assert (out / "x").read_text() == ".out.01234567.old"
    assert sorted(os.listdir(tmp_path)) == [".out.thesis.new", "out"]


@pytest.mark.linux_only("renameat2")
def test_folders_are_exchanged_in_one_step(tmp_path, monkeypatch):
    """No moment without a complete folder of that name."""
    for name in ("made", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    monkeypatch.setattr(Path, "rename", lambda *_: pytest.fail("two steps"))
    install_folder(tmp_path / "made", tmp_path / "out")
    assert (tmp_path / "out" / "x").read_text() == "made"
    assert os.listdir(tmp_path) == ["out"]


def test_a_file_is_replaced_when_it_is_complete(tmp_path):
    path = tmp_path / "figure.png"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replace_file(path) as draft:
        draft.write_text("half")
        1 / 0  # noqa: B018
    assert path.read_text() == "old"
    (tmp_path / ".figure.png.01234567.new.png").write_text("left by a kill")
    with replace_file(path) as draft:
        assert draft.suffix == ".png"
        draft.write_text("new")
    assert (path.read_text(), os.listdir(tmp_path)) == ("new", ["figure.png"])


# --- folders that fill over time -------------------------------------------------------------------------------

PLAN = {"recipe": {"bits": (2, 2, 8)}, "seed": 1, "student": None}


def claimed(folder, plan=PLAN, **options):
    return claim_folder(folder, "job.json", plan, **options)


def test_a_claim_is_resumed_by_the_same_job_only(tmp_path):
    folder = tmp_path / "deep" / "out"
    assert claimed(folder) is False
    (folder / "result").write_text("hours")
    assert claimed(folder) is True
    assert claimed(folder, PLAN | {"more": None}) is True  # a setting that did not exist then, and is not used now
    with pytest.raises(OutputError, match=r"out.*seed.*--output.*--force"):
        claimed(folder, PLAN | {"seed": 2})
    with pytest.raises(OutputError, match=r"recipe, seed; --again"):
        claimed(folder, {"recipe": {}, "seed": 2}, advice="--again")
    assert files(folder) == ["job.json", "result"]


def test_force_starts_over(tmp_path):
    claimed(tmp_path)
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "a").write_text("x")
    (tmp_path / "result").write_text("x")
    assert claimed(tmp_path, force=True, owned=("cells",)) is False
    assert files(tmp_path) == ["job.json", "result"]
    assert claimed(tmp_path, PLAN | {"seed": 2}, force=True) is False
    assert files(tmp_path) == ["job.json"]
    assert read_json(tmp_path / "job.json")["seed"] == 2
    (tmp_path / "job.json").write_text("{")
    with pytest.raises(OutputError, match=r"job\.json"):
        claimed(tmp_path)
    assert claimed(tmp_path, force=True) is False


@pytest.mark.parametrize("force", [False, True])
def test_what_no_job_of_ours_made_is_never_claimed(tmp_path, force):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    for name in ("out", "file"):
        with pytest.raises(FolderExistsError, match=name):
            claimed(tmp_path / name, force=force)
    assert files(tmp_path) == ["file", "out/thesis.txt"]


def test_killed_while_it_claims(tmp_path):
    (tmp_path / "job.json.new").write_text("{")
    assert claimed(tmp_path) is False
    assert claimed(tmp_path) is True


def test_killed_while_it_starts_over(tmp_path, monkeypatch):
    """What is left half-deleted is resumed by no job, and is not taken for somebody else's."""
    claimed(tmp_path)
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / "x").write_text("x")

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            claimed(tmp_path, force=True)
    assert claimed(tmp_path, PLAN | {"seed": 2}) is False
    assert files(tmp_path) == ["job.json"]


def test_a_released_folder_stays_ours(tmp_path):
    claimed(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    release_folder(tmp_path, "job.json", ["result"])
    assert claimed(tmp_path, PLAN | {"seed": 2}, owned=["result"]) is False
    assert files(tmp_path) == ["job.json", "notes.txt"]


def test_a_check_touches_nothing(tmp_path):
    check_claim(tmp_path / "new", "job.json", PLAN)
    assert not (tmp_path / "new").exists()


def test_a_claim_by_a_file_beside_the_output(tmp_path):
    marker, folder = tmp_path / "deep" / "teacher.json", tmp_path / "deep" / "teacher"
    assert claim_file(marker, PLAN, what=folder) is False
    assert claim_file(marker, PLAN, what=folder) is True
    with pytest.raises(OutputError, match=re.escape(str(folder)) + " .*seed"):
        claim_file(marker, PLAN | {"seed": 2}, what=folder)


# --- files that grow row by row --------------------------------------------------------------------------------

STEPS = ["header\n", "a\nb\n", "é\n", "d\n"]


def write(path, steps, identity="job", force=False):
    with ResumableFile(path, identity, force=force) as file:
        for step in steps[file.progress.done :]:
            file.append(step, done=1, written=step.count("\n"))
        return file.progress


def finish(path, identity="job", force=False):
    with ResumableFile(path, identity, force=force) as file:
        start = file.progress.done
        for step in STEPS[start:]:
            file.append(step, done=1, written=step.count("\n"))
        file.finish()
        return start, file.progress.written


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "out.tsv"


def part(path):
    return path.with_name("out.tsv.part")


def progress(path):
    return path.with_name("out.tsv.part.json")


@pytest.mark.parametrize("stopped_after", range(5))
def test_stopped_after_any_step_and_continued(path, stopped_after):
    write(path, STEPS[:stopped_after])
    assert not path.exists()
    assert finish(path) == (stopped_after, 5)
    assert path.read_text(encoding="utf-8") == "".join(STEPS)
    assert [p.name for p in path.parent.iterdir()] == ["out.tsv"]


@pytest.mark.parametrize("torn", [b"d", b"d\nmore\n", b"\xc3"])
def test_killed_between_the_rows_and_the_progress(path, torn):
    write(path, STEPS[:2])
    with part(path).open("ab") as file:
        file.write(torn)
    assert finish(path) == (2, 5)
    assert path.read_text(encoding="utf-8") == "".join(STEPS)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"identity": "job"', '{"other": 1}', None])
def test_without_readable_progress_nothing_is_continued(path, text):
    write(path, STEPS[:2])
    if text is None:
        progress(path).unlink()
    else:
        progress(path).write_text(text)
    with pytest.raises(OutputError, match=re.escape(str(part(path)))):
        finish(path)
    assert finish(path, force=True) == (0, 5)


def test_a_part_that_lost_its_end_is_not_continued(path):
    write(path, STEPS[:3])
    part(path).write_bytes(b"he")
    assert json.loads(progress(path).read_text())["done"] == 3
    with pytest.raises(OutputError, match=re.escape(str(part(path)))):
        finish(path)


def test_killed_before_the_first_progress(path):
    path.parent.mkdir()
    part(path).write_bytes(b"")
    assert finish(path) == (0, 5)
    assert path.read_text(encoding="utf-8") == "".join(STEPS)


def test_another_job_does_not_continue(path):
    write(path, STEPS[:3], identity="other")
    with pytest.raises(OutputError, match=r"out.tsv.part .*--force"):
        finish(path)
    assert finish(path, force=True) == (0, 5)


def test_force_drops_an_unfinished_file_of_the_same_job(path):
    write(path, STEPS[:3])
    assert finish(path, force=True) == (0, 5)
    assert path.read_text(encoding="utf-8") == "".join(STEPS)


def test_a_finished_file_is_not_overwritten_unless_asked(path):
    finish(path)
    for check in (finish, lambda path: check_output_file(path, force=False)):
        with pytest.raises(OutputError, match=r"out.tsv exists.*--force"):
            check(path)
    path.write_text("old")
    write(path, STEPS[:1], force=True)
    assert path.read_text() == "old"  # until the new one is complete
    assert finish(path, force=True) == (0, 5)
    assert path.read_text(encoding="utf-8") == "".join(STEPS)


def test_a_forced_run_that_was_stopped_is_resumed_without_force(path):
    """With it, it would start over; and that the file may be replaced was said once."""
    finish(path)
    path.write_text("old")
    write(path, STEPS[:2], force=True)
    check_output_file(path, force=False)
    with pytest.raises(OutputError, match=re.escape(str(path))):
        finish(path, identity="other")
    assert finish(path) == (2, 5)
    assert path.read_text(encoding="utf-8") == "".join(STEPS)


def test_a_file_that_appears_meanwhile_is_not_resumed_over(path):
    write(path, STEPS[:2])
    path.write_text("somebody's")
    with pytest.raises(OutputError, match=re.escape(str(path))):
        finish(path)
    assert path.read_text() == "somebody's"


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match=re.escape(str(tmp_path / "file" / "out.tsv"))):
        finish(tmp_path / "file" / "out.tsv")


def test_exported_files_may_be_replaced_but_nothing_beside_them(tmp_path):
    folder = tmp_path / "packed"
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx" / "model_q2.onnx").write_bytes(b"x")
    check_output_folder(folder, replaceable=True)
    (folder / "onnx" / "notes.txt").write_text("mine")
    with pytest.raises(FolderExistsError, match="onnx"):
        check_output_folder(folder, replaceable=True)
