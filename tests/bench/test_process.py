"""Worker processes: what they report when they end, and how memory is measured."""

import sys
from pathlib import Path

import psutil
import pytest

from ternarybert.bench.process import WorkerProcess, peak_memory, resident_memory


def test_a_worker_that_ends_reports_the_last_line_of_its_log():
    with WorkerProcess("no_such_module", environment={}) as worker:
        assert "no_such_module" in worker.receive()["failed"]
        assert "no_such_module" in worker.request(shape="1x8")["failed"]  # its pipe is closed by then


def test_libraries_may_print_without_disturbing_the_replies(tmp_path, monkeypatch):
    (tmp_path / "noisy_worker.py").write_text(
        "from ternarybert.bench.process import serve\n"
        "def prepare():\n"
        "    print('loading')\n"
        "    return {'ready': True}, lambda request: print('working') or {'twice': 2 * request['number']}\n"
        "serve(prepare)\n"
    )
    environment = {"PYTHONPATH": ":".join([str(tmp_path), *filter(None, sys.path)])}
    with WorkerProcess("noisy_worker", environment=environment) as worker:
        assert worker.receive() == {"ready": True}
        assert [worker.request(number=n)["twice"] for n in (1, 5)] == [2, 10]


def test_an_error_while_preparing_is_the_first_reply(tmp_path):
    (tmp_path / "broken_worker.py").write_text(
        "from ternarybert.bench.process import serve\nserve(lambda: {}['no such engine'])\n"
    )
    environment = {"PYTHONPATH": ":".join([str(tmp_path), *filter(None, sys.path)])}
    with WorkerProcess("broken_worker", environment=environment) as worker:
        assert worker.receive() == {"failed": "KeyError: 'no such engine'"}


def test_memory_is_that_of_the_process(monkeypatch):
    expected = psutil.Process().memory_info().rss
    assert resident_memory() == pytest.approx(expected, rel=0.2)
    assert peak_memory() >= 0.99 * resident_memory()

    def missing(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)  # as outside Linux
    assert resident_memory() == pytest.approx(expected, rel=0.2)
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert resident_memory() == 0
