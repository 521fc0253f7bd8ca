import json

import pytest

from ternarybert.errors import OutputError
from ternarybert.storage import ResumableFile

STEPS = ["header\n", "a\nb\n", "é\n", "d\n"]


def write(path, steps, job="job", force=False):
    with ResumableFile(path, job, force=force) as file:
        for step in steps[file.state.done :]:
            file.append(step, done=1, written=step.count("\n"))
        return file.state


def finish(path, job="job", force=False):
    with ResumableFile(path, job, force=force) as file:
        start = file.state.done
        for step in STEPS[start:]:
            file.append(step, done=1, written=step.count("\n"))
        file.finish()
        return start, file.state.written


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "out.tsv"


def part(path):
    return path.with_name("out.tsv.part")


def note(path):
    return path.with_name("out.tsv.part.json")


@pytest.mark.parametrize("stopped_after", range(5))
def test_stopped_after_any_step_and_continued(path, stopped_after):
    write(path, STEPS[:stopped_after])
    assert not path.exists()
    assert finish(path) == (stopped_after, 5)
    assert path.read_text(encoding="utf-8") == "".join(STEPS)
    assert [p.name for p in path.parent.iterdir()] == ["out.tsv"]


@pytest.mark.parametrize("torn", [b"d", b"d\nmore\n", b"\xc3"])
def test_killed_between_the_rows_and_the_note(path, torn):
    write(path, STEPS[:2])
    with part(path).open("ab") as file:
        file.write(torn)
    assert finish(path) == (2, 5)
    assert path.read_text(encoding="utf-8") == "".join(STEPS)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"job": "job"', '{"other": 1}', None])
def test_without_a_readable_note_nothing_is_continued(path, text):
    write(path, STEPS[:2])
    if text is None:
        note(path).unlink()
    else:
        note(path).write_text(text)
    with pytest.raises(OutputError, match="is from another run"):
        finish(path)
    assert finish(path, force=True) == (0, 5)


def test_a_part_that_lost_its_end_is_not_continued(path):
    write(path, STEPS[:3])
    part(path).write_bytes(b"he")
    assert json.loads(note(path).read_text())["done"] == 3
    with pytest.raises(OutputError, match="is from another run"):
        finish(path)


def test_killed_before_the_first_note(path):
    path.parent.mkdir()
    part(path).write_bytes(b"")
    assert finish(path) == (0, 5)
    assert path.read_text(encoding="utf-8") == "".join(STEPS)


def test_another_job_does_not_continue(path):
    write(path, STEPS[:3], job="other")
    with pytest.raises(OutputError, match=r"out.tsv.part is from another run.*--force"):
        finish(path)
    assert finish(path, force=True) == (0, 5)


def test_a_finished_file_is_not_overwritten_unless_asked(path):
    finish(path)
    with pytest.raises(OutputError, match=r"out.tsv exists.*--force"):
        finish(path)
    path.write_text("old")
    write(path, STEPS[:1], force=True)
    assert path.read_text() == "old"  # until the new one is complete
    assert finish(path, force=True) == (1, 5)
    assert path.read_text(encoding="utf-8") == "".join(STEPS)


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot write"):
        finish(tmp_path / "file" / "out.tsv")
