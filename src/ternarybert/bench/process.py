"""A measurement in a separate process: requests and replies are lines of JSON over pipes.

`WorkerProcess` is the caller's side. It starts `python -m MODULE ARGUMENTS...`, sends requests and reads replies.
`serve` is the worker's side. What libraries print goes to standard error; the last line of it explains why a worker
ended. `bench` and `demo` both use this, so that time and memory are measured the same way. Standard library only: a
worker's memory is that of the model it runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeAlias

Reply: TypeAlias = dict[str, Any]  # `{"failed": reason}` if the worker could not do it
Handler: TypeAlias = Callable[[dict[str, Any]], Reply]

_LONGEST_REASON = 300


class WorkerProcess:
    """A Python module in its own process that answers requests; ended when the `with` block ends."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str]) -> None:
        self._log = TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **environment},
        )

    def receive(self) -> Reply:
        """Wait for the next reply; the first one comes without a request, when the worker is ready."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            reply: Reply = json.loads(line)
            return reply
        code = self._process.wait()
        self._log.seek(0)
        last = self._log.read().decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        return {"failed": f"ended with code {code}: {last[0]}"[:_LONGEST_REASON]}

    def request(self, **parameters: Any) -> Reply:
        """Send a request and wait for the reply."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `receive` reports why the worker ended
            print(json.dumps(parameters), file=self._process.stdin, flush=True)
        return self.receive()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()  # waits, and closes the pipes
        self._log.close()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(prepare: Callable[[], tuple[Reply, Handler]]) -> None:
    """Run a worker until its input ends; `prepare` returns the first reply and the function that handles requests."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between the replies

    def send(reply: Reply) -> None:
        print(json.dumps(reply), file=replies, flush=True)

    try:
        ready, handle = prepare()
    except Exception as error:  # whatever a third-party engine raises is a reason for the caller to show
        send({"failed": f"{type(error).__name__}: {error}".split("\n")[0][:_LONGEST_REASON]})
        return
    send(ready)
    for line in sys.stdin:
        send(handle(json.loads(line)))


def resident_memory() -> int:
    """Bytes of this process in RAM; 0 where it cannot be measured."""
    return _memory("VmRSS")


def peak_memory() -> int:
    """The largest resident memory so far; outside Linux, the current one."""
    return _memory("VmHWM")


def _memory(field: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # not Linux
        return _psutil_memory()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:")), 0)


def _psutil_memory() -> int:
    try:
        import psutil
    except ModuleNotFoundError:
        return 0
    return int(psutil.Process().memory_info().rss)
