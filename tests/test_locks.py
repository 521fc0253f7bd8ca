"""An output is made by one run at a time; a run that ended, however it ended, blocks nobody."""

import errno
import os
import signal
import threading

import pytest

from ternarybert import locks
from ternarybert.errors import OutputError
from ternarybert.locks import exclusive_lock


@pytest.fixture
def other(tmp_path):
    """A process that holds the lock of an output until it is killed."""
    started = []

    def start(path):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            with exclusive_lock(path):
                os.write(write, b"x")
                signal.pause()
        os.read(read, 1)
        started.append(child)
        return child

    yield start
    for child in started:
        kill(child)


def kill(child):
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def test_another_process_is_refused_until_the_first_one_is_dead(tmp_path, other):
    path = tmp_path / "out.csv"
    child = other(path)
    with pytest.raises(OutputError, match=r"out\.csv"), exclusive_lock(path):
        pass
    with exclusive_lock(tmp_path / "other.csv"):
        pass
    kill(child)
    with exclusive_lock(path) as is_first:
        assert is_first
    assert os.listdir(tmp_path) == []


def test_one_output_by_several_paths(tmp_path, other, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    other(tmp_path / "folder" / "out")
    monkeypatch.chdir(tmp_path / "folder")
    for path in (tmp_path / "link" / "out", tmp_path / "folder" / ".." / "folder" / "out", locks.Path("out")):
        with pytest.raises(OutputError, match="out"), exclusive_lock(path):
            pass


def test_a_thread_may_lock_again_and_another_thread_may_not(tmp_path):
    path, refused = tmp_path / "out", []

    def attempt():
        try:
            with exclusive_lock(path):
                refused.append(False)
        except OutputError:
            refused.append(True)

    with exclusive_lock(path), exclusive_lock(path) as is_first:
        assert not is_first
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    attempt()
    assert refused == [True, False]


def test_a_child_that_outlives_the_run_blocks_nobody(tmp_path):
    """As a worker process would that was started in the meantime."""
    path = tmp_path / "out"
    with exclusive_lock(path):
        child = os.fork()
        if child == 0:
            signal.pause()
    try:
        with exclusive_lock(path):
            pass
    finally:
        kill(child)


def test_the_lock_that_its_owner_has_just_removed_is_not_taken_for_the_new_one(tmp_path, monkeypatch):
    """Between opening and locking the file its owner removes it, and a third run makes it anew."""
    path, lock, handles = tmp_path / "out", tmp_path / ".out.lock", []
    take = locks._lock_handle

    def removed_meanwhile(handle):
        take(handle)
        handles.append(handle)
        if len(handles) == 1:
            lock.unlink()

    monkeypatch.setattr(locks, "_lock_handle", removed_meanwhile)
    with exclusive_lock(path):
        assert len(handles) == 2
        assert lock.exists()


def test_folders_made_for_the_lock_alone_are_removed(tmp_path):
    with exclusive_lock(tmp_path / "deep" / "er" / "out"):
        pass
    assert os.listdir(tmp_path) == []
    with exclusive_lock(tmp_path / "deep" / "er" / "out"):
        (tmp_path / "deep" / "er" / "out").write_text("x")
    assert os.listdir(tmp_path / "deep" / "er") == ["out"]


def test_a_file_system_without_locks_is_used_with_a_warning(tmp_path, monkeypatch, caplog):
    def refuse(handle):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks, "_lock_handle", refuse)
    with exclusive_lock(tmp_path / "out"):
        pass
    assert "out" in caplog.text
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match=r"file.out"), exclusive_lock(tmp_path / "file" / "out"):
        pass
    with pytest.raises(OutputError, match="out"):
        monkeypatch.setattr(locks, "_lock_handle", lambda handle: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        with exclusive_lock(tmp_path / "out"):
            pass
