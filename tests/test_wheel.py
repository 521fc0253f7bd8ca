"""The wheel: one per platform, complete, without junk, and enough to run a packed model where there is no compiler.

No network is needed. The fresh environment gets links to the base dependencies of this one, and to nothing else.
"""

import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import ternarybert
from ternarybert.runtime import load
from tests.runtime.folders import save_student

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "ternarybert"
SCRIPTS = "Scripts" if os.name == "nt" else "bin"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    place = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    command += [f"--config-settings=build-dir={place / 'build'}", "--wheel-dir", str(place), str(ROOT)]
    subprocess.run(command, check=True)
    [made] = place.glob("*.whl")
    return made


def test_one_wheel_for_every_python(wheel):
    assert re.fullmatch(rf"ternarybert-{re.escape(ternarybert.__version__)}-py3-none-\w+\.whl", wheel.name)
    assert not wheel.name.endswith("-any.whl")


def test_the_library_and_no_junk(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if not name.endswith("/")}
        described = file.read(f"ternarybert-{ternarybert.__version__}.dist-info/METADATA").decode()
    sources = {path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob("*.py")}
    library = {"win32": "ternarybert.dll", "darwin": "libternarybert.dylib"}.get(sys.platform, "libternarybert.so")
    inside = {name for name in names if ".dist-info/" not in name}
    others = {"ternarybert/py.typed", "ternarybert/report/page.html.jinja", f"ternarybert/{library}"}
    for_c = {"include/ternarybert.h", "pkgconfig/ternarybert.pc", "cmake/ternarybert-config.cmake"}
    for_c |= {"cmake/ternarybert-config-release.cmake", "cmake/ternarybert-config-version.cmake"}
    assert inside == sources | others | {f"ternarybert/{name}" for name in for_c}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "Provides-Extra: demo" in described
    assert wheel.stat().st_size < 2 << 20


def base_dependencies():
    """Distributions that a base install pulls in, by the metadata of those installed here."""
    waiting, found = ["ternarybert"], {}
    while waiting:
        for line in metadata.requires(waiting.pop()) or []:
            name = re.match(r"[A-Za-z0-9._-]+", line)[0].casefold().replace("_", "-")
            if "extra ==" in line.replace("extra==", "extra ==") or name in found:
                continue
            try:
                found[name] = metadata.distribution(name)
            except metadata.PackageNotFoundError:
                assert ";" in line, f"{name} is missing here"  # of another platform or Python
                continue
            waiting.append(name)
    return found.values()


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """The Python of an environment with the wheel and its base dependencies."""
    place = tmp_path_factory.mktemp("fresh")
    venv.create(place / "env", with_pip=False, symlinks=os.name != "nt")
    python = place / "env" / SCRIPTS / "python"
    target = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    for distribution in base_dependencies():
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            link = Path(target) / top
            if not link.exists():
                link.symlink_to(Path(distribution.locate_file(top)).resolve())
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--no-compile", str(wheel)], check=True)
    return python


def run(python, *arguments):
    """Without a compiler in reach, and without this environment's settings."""
    environment = {"PATH": str(python.parent), "LANG": "C.UTF-8", "HOME": os.environ.get("HOME", "/")}
    return subprocess.run([*map(str, arguments)], capture_output=True, text=True, env=environment, cwd=python.parent)


def test_predict_in_a_fresh_environment(fresh, tmp_path):
    assert run(fresh, fresh, "-c", "import torch").returncode != 0
    assert run(fresh, fresh, "-c", "import transformers").returncode != 0
    folder = save_student(tmp_path / "model", "ForSequenceClassification")
    result = run(fresh, fresh.parent / "ternarybert", "predict", folder, "a good film", "dull")
    assert result.returncode == 0, result.stderr
    with load(folder) as model:
        wanted = [answer.label for answer in model.predict(["a good film", "dull"])]
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == wanted


def test_doctor_in_a_fresh_environment(fresh):
    result = run(fresh, fresh.parent / "ternarybert", "doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "bit for bit" in result.stdout and "pip install 'ternarybert[train]'" in result.stdout


def test_what_needs_more_says_so_in_one_line(fresh, tmp_path):
    (tmp_path / "mail.csv").write_text("text,label\na,0\nb,1\n")
    for arguments in (["demo"], ["ternarize", str(tmp_path), "--train", str(tmp_path / "mail.csv")]):
        result = run(fresh, fresh.parent / "ternarybert", *arguments)
        assert result.returncode == 2, result.stderr
        assert result.stderr.startswith("ternarybert: ") and "pip install" in result.stderr
        assert result.stderr.count("\n") == 1
