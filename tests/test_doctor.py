import json
import re
import subprocess
import sys

import numpy as np
import pytest

from ternarybert import doctor
from ternarybert.doctor import examine
from ternarybert.native import kernels
from ternarybert.runtime.engine import Engine
from tests.cli.shell import command


@pytest.fixture
def quick(monkeypatch):
    """The speed of this machine is not what is tested."""
    monkeypatch.setattr(doctor, "speed", lambda threads: {"kernel": "k", "threads": threads, "tokens per second": 1})


def test_all_is_well(quick):
    report = examine()
    assert report.problems == []
    assert report.selftest["bits"] is True
    assert report.engine["kernels"] == kernels() and report.engine["chosen"] == kernels()[0]
    assert report.versions["numpy"] == np.__version__
    assert report.extras["train"]["torch"] and "demo" in report.extras


def test_the_page_and_its_json(quick):
    code, out, _ = command("doctor")
    assert code == 0 and "problem" not in out
    assert "tokens/s" in out
    code, out, _ = command("doctor", "--json")
    assert code == 0 and json.loads(out)["problems"] == []
    code, out, _ = command("doctor", "--no-selftest", "--json")
    assert json.loads(out)["selftest"] == {}


def test_a_kernel_that_computes_something_else_is_found(monkeypatch, quick):
    run = Engine.run

    def wrong(self, batch, output):
        rows = run(self, batch, output)
        return np.nextafter(rows, np.float32(9)) if self.kernel == "portable" else rows  # the last bit

    monkeypatch.setattr(Engine, "run", wrong)
    report = examine()
    assert report.selftest["bits"] is False
    assert len(report.problems) == 4  # two packings, two numbers of threads
    assert all("kernel portable" in problem for problem in report.problems)
    code, out, _ = command("doctor")
    assert code == 1 and "DIFFER" in out and "kernel portable" in out


@pytest.mark.parametrize(
    ("variable", "value"),
    [("TERNARYBERT_KERNEL", "avx3"), ("TERNARYBERT_THREADS", "many")],
)
def test_a_bad_variable_is_a_problem(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    code, out, _ = command("doctor", "--no-selftest")
    assert code == 1
    assert re.search(rf"problem: {variable}.*{value}", out)


def test_a_missing_library_is_a_problem_with_a_command(monkeypatch):
    from ternarybert import native

    native.library.cache_clear()
    native.library.cache_clear()
    monkeypatch.setattr(native, "_FILE_NAME", "libnothing.so")
    code, out, _ = command("doctor")
    assert code == 1 and "native library" in out and "pip install" in out
    native.library.cache_clear()
    native.library.cache_clear()


def test_whatever_else_breaks_is_no_traceback(monkeypatch):
    monkeypatch.setattr(doctor, "wrong_kernels", lambda: 1 / 0)
    report = examine()
    assert len(report.problems) == 1 and "ZeroDivisionError" in report.problems[0]


def test_missing_packages_are_problems(monkeypatch, quick):
    version = doctor.metadata.version

    def without(name):
        if name in ("rich", "torch"):
            raise doctor.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor.metadata, "version", without)
    code, out, _ = command("doctor", "--no-selftest")
    assert code == 1
    assert "rich is missing: pip install rich" in out
    assert re.search(r"torch.*pip install 'ternarybert\[train\]'", out)


def test_never_imports_torch():
    code = (
        "import sys; sys.argv = ['ternarybert', 'doctor', '--no-selftest', '--json']\n"
        "from ternarybert.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "import ternarybert.doctor\n"
        "assert not {'torch', 'transformers', 'datasets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_the_speed_is_measured():
    measured = doctor.speed(1, seconds=0.0)
    assert measured["tokens per second"] > 0 and measured["kernel"] == kernels()[0]
