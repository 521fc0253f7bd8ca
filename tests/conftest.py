"""What every test relies on: one thread, no network, caches of its own, the same random state and examples each time.

Tests run in several workers at the same time (`make test`), so they share nothing but what is only read: every file is
in a temporary folder, every port is asked for, and models that many tests read are made once (`shared_folder`).
"""

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import settings

ROOT = Path(__file__).parent.parent

# Models here are tiny: a second thread gains nothing, and on a busy machine the two wait for each other without end.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Read when libraries are imported, so they are set before that. Workers and subprocesses inherit them.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _CACHES = Path(tempfile.mkdtemp(prefix="ternarybert-tests-"))
    atexit.register(shutil.rmtree, _CACHES, ignore_errors=True)
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME"):
        os.environ[variable] = str(_CACHES / variable.lower())
    for variable in ("HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_MODULES_CACHE", "TRANSFORMERS_CACHE"):
        os.environ.pop(variable, None)
    os.environ["HF_HUB_OFFLINE"] = "1"

# The same examples every time, and no time limit: a busy machine is not a bug.
settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")


@pytest.fixture(autouse=True)
def seed():
    """Every test starts from the same random state, whichever ran before. Without torch there is none to set."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """Gives a folder by name, filled once for all workers by a function of its path. It must only be read."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder(name, fill):
        place = root / "shared" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{place}.lock"):
            if not place.exists():
                unfinished = place.with_name(f"{place.name}.unfinished")
                fill(unfinished)
                unfinished.rename(place)
        return place

    return folder


def pytest_collection_finish():
    """Torch and transformers are imported by now: hundreds of thousands of objects that no collection need visit.

    Every training run ends with a collection, which this makes several times faster.
    """
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item):
    for mark in item.iter_markers("linux_only"):
        if sys.platform != "linux":
            pytest.skip(f"needs Linux: {mark.args[0]}")


# Caches of the tools themselves, which .gitignore lists.
_OF_TOOLS = {".coverage", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__", "build"}


def _entries():
    """Where a command without --output, or a library's cache, would leave something."""
    home = Path.home()
    folders = (ROOT, ROOT / "tests", home, home / ".cache", home / ".cache" / "huggingface")
    return {str(entry) for folder in folders if folder.is_dir() for entry in folder.iterdir()}


def pytest_sessionstart(session):
    session.entries_before = _entries()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Fail if the tests left anything in the working tree or in the user's home."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    left = [path for path in sorted(_entries() - session.entries_before) if Path(path).name not in _OF_TOOLS]
    left = [path for path in left if not Path(path).name.startswith(".coverage.")]
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        session.config.get_terminal_writer().line(f"\nthe tests left behind: {', '.join(left)}", red=True)


@pytest.fixture
def busy():
    """Lock an output as another process would that writes to it, until the test ends."""
    from ternarybert.storage import lock_output

    children = []

    def lock(path):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            with lock_output(path):
                os.write(write, b"x")
                signal.pause()
        os.read(read, 1)
        children.append(child)

    yield lock
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
