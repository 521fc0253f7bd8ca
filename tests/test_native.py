"""The native library is there, belongs to this version, and tells the truth about the CPU."""

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import ternarybert
from ternarybert import native
from ternarybert.errors import NativeLibraryError

ROOT = Path(__file__).parent.parent


def test_version_is_the_packages():
    assert native.version() == ternarybert.__version__ == metadata.version("ternarybert")


def test_cpu_features_have_known_names():
    assert native.cpu_features() <= {"neon", "dotprod", "avx2", "avx_vnni", "avx512bw", "avx512vnni"}


@pytest.mark.linux_only("the operating system's list is read from /proc")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names of x86-64's features are compared")
def test_cpu_features_agree_with_the_operating_system():
    cpuinfo = Path("/proc/cpuinfo").read_text()
    flags = set(next(line for line in cpuinfo.splitlines() if line.startswith("flags")).split())
    expected = {ours for ours, theirs in (("avx2", "avx2"), ("avx_vnni", "avx_vnni")) if theirs in flags}
    if {"avx512f", "avx512bw", "avx512vl"} <= flags:
        expected |= {"avx512bw"} | ({"avx512vnni"} if "avx512_vnni" in flags else set())
    assert native.cpu_features() == expected


def test_a_library_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(ternarybert, "__version__", "9.9")
    with pytest.raises(NativeLibraryError, match=r"the package 9\.9"):
        native.library.__wrapped__()


def test_a_missing_library_says_what_to_do(monkeypatch):
    monkeypatch.setattr(native, "_FILE_NAME", "nowhere.so")
    with pytest.raises(NativeLibraryError, match="pip install"):
        native.library_path()


@pytest.mark.linux_only("reads an ELF file")
def test_the_library_is_hardened():
    """native/CMakeLists.txt says what for. Of stacks that are not executable the compilers take care."""
    command = ["readelf", "--wide", "--program-headers", "--dynamic", "--dyn-syms", native.library_path()]
    environment = os.environ | {"LC_ALL": "C"}
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    segments = {line.split()[0]: line.split()[6:-1] for line in shown.splitlines() if line.startswith("  GNU_")}
    assert segments["GNU_RELRO"] == ["R"]
    assert segments["GNU_STACK"] == ["RW"]
    assert re.search(r"\(FLAGS\) .*\bBIND_NOW\b|\(BIND_NOW\)|\(FLAGS_1\) .*\bNOW\b", shown)
    assert "(TEXTREL)" not in shown
    assert re.search(r" UND __stack_chk_fail\b", shown)


def test_without_a_compiler_the_build_says_what_to_install(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    bin_of_python = Path(sys.executable).parent
    for tool in ("cmake", "ninja"):
        found = shutil.which(tool, path=f"{bin_of_python}{os.pathsep}{os.environ['PATH']}")
        assert found, f"{tool} comes with the dev extra"
        (tools / tool).symlink_to(found)
    environment = {"PATH": str(tools), "HOME": str(tmp_path)}
    command = [tools / "cmake", "-S", ROOT, "-B", tmp_path / "build", "-G", "Ninja"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "found no C++ compiler" in result.stderr
    assert "apt-get install g++" in result.stderr


def test_the_base_package_imports_without_torch():
    code = "import sys, ternarybert.recipe, ternarybert.native as n; n.version(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
