"""Python in processes of its own, without paying for the import of torch in each of them.

What a kill does, what Ctrl-C does and what several processes do together can only be seen in separate processes. Each
would import torch and transformers for five seconds. So a server process imports them once per test worker
(`multiprocessing`'s fork server), and every process is forked from it within milliseconds. It has imported nothing of
ternarybert and shares nothing with the test, so it behaves as one that was started by a shell; its standard output and
errors go to files.
"""

import atexit
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
from pathlib import Path

# Slow to import, and needed by every command that trains.
_PRELOADED = [
    "torch",
    "torch.distributed.tensor",
    "datasets",
    "torch.distributed.launcher.api",
    "accelerate",
    "sklearn.metrics",
    "transformers",
    "transformers.trainer",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.bert.modeling_bert",
]


def _context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def _run(arguments: list[str], path: list[str], environment: dict[str, str], folder: str, out: str, err: str) -> None:
    """What `python ARGUMENTS` does: `-m MODULE`, `-c CODE` or a script, and what follows."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, name in ((0, os.devnull), (1, out), (2, err)):
        opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:] = path
    kind = arguments[0]
    sys.argv = arguments if kind not in ("-m", "-c") else arguments[1:] if kind == "-m" else ["-c", *arguments[2:]]
    if kind == "-m":
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path.insert(0, str(Path(kind).parent))
        runpy.run_path(kind, run_name="__main__")


class Forked:
    """A running Python, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, *arguments: object, environment: dict[str, str] | None = None, cwd: object = None) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._streams = [os.path.join(self._folder.name, name) for name in ("out", "err")]
        for stream in self._streams:  # there is something to read even if the process is killed before it starts
            Path(stream).touch()
        whole = dict(os.environ) | {"OMP_NUM_THREADS": "1"} | (environment or {})
        given = ([str(argument) for argument in arguments], list(sys.path), whole, str(cwd or os.getcwd()))
        self._process = _context().Process(target=_run, args=(*given, *self._streams))
        self._process.start()
        atexit.register(self._process.kill)  # a test that failed waits for nothing

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the signal that ended the process; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; give the standard output and errors."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise TimeoutError(f"process {self._process.pid} still runs after {timeout} s")
        if self._folder is not None:
            self._texts = tuple(Path(stream).read_text(encoding="utf-8") for stream in self._streams)
            self._folder.cleanup()
            self._folder = None
        return self._texts


def fork(*arguments: object, **more: object) -> Forked:
    """Start `python ARGUMENTS`."""
    return Forked(*arguments, **more)


# What `torchrun` does after it has read its options, but its processes are forked instead of started.
_LAUNCH = """
import runpy, sys
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

count, _, module, *arguments = sys.argv[1:]

def rank():
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)

config = LaunchConfig(
    min_nodes=1, max_nodes=1, nproc_per_node=int(count), run_id="tests", rdzv_backend="c10d",
    rdzv_endpoint="localhost:0", max_restarts=0, start_method="fork",
)
try:
    elastic_launch(config, rank)()
except ChildFailedError as error:
    sys.exit(next(iter(error.failures.values())).exitcode)
"""


def fork_ranks(count: int, *arguments: object) -> Forked:
    """Start `python -m MODULE ...` as `count` processes of one data-parallel run, as `torchrun` does."""
    return Forked("-c", _LAUNCH, count, *arguments)
