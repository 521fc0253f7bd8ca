"""A C program finds the installed library by CMake and by pkg-config, and predicts what Python predicts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ternarybert.packed.bundle import write_bundle
from ternarybert.runtime import load
from tests.runtime.folders import save_student

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "native" / "examples" / "predict"
TEXTS = ["the film was good", "a dull plot"]


def run(*command, **more):
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, **more)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that a wheel has too, installed from the build tree of `make test-native`."""
    build = ROOT / "build" / "native"
    if not (build / "CMakeCache.txt").exists():
        run("cmake", "-S", ROOT, "-B", build, "-DTB_TESTS=ON", "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", build, "--target", "ternarybert")
    place = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", build, "--prefix", place)
    return place / "ternarybert"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_student(tmp_path_factory.mktemp("c") / "model", "ForSequenceClassification")


def expected(folder):
    with load(folder, num_threads=1) as model:
        for label in model.predict(TEXTS):
            yield "  ".join(f"{name} {score:.6f}" for name, score in label.scores.items())


def test_by_cmake(installed, folder, tmp_path):
    run("cmake", "-S", EXAMPLE, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed / 'cmake'}")
    run("cmake", "--build", tmp_path / "build")
    program = tmp_path / "build" / "predict"
    assert run(program, folder, *TEXTS).splitlines() == list(expected(folder))
    write_bundle(folder, tmp_path / "m.tbert")
    assert run(program, tmp_path / "m.tbert", *TEXTS).splitlines() == list(expected(folder))
    failed = subprocess.run([program, tmp_path / "nothing", "a"], capture_output=True, text=True)
    assert failed.returncode == 2
    assert "there is no such folder or file" in failed.stderr


def test_by_pkg_config(installed, folder, tmp_path):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(installed / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "ternarybert", env=environment).split()
    run("cc", "-std=c11", "-Wall", "-Werror", EXAMPLE / "predict.c", "-o", tmp_path / "predict", *flags)
    found = run(tmp_path / "predict", folder, *TEXTS, env={**os.environ, "LD_LIBRARY_PATH": str(installed)})
    assert found.splitlines() == list(expected(folder))


def test_the_command_tells_where_the_package_is():
    folder = run(sys.executable, "-m", "ternarybert", "--cmake-dir").strip()
    assert (Path(folder) / "ternarybert-config.cmake").is_file()


def test_the_example_is_one_screen():
    assert len((EXAMPLE / "predict.c").read_text().splitlines()) <= 60
