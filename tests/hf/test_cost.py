"""The promise about memory: reading a packed BERT-base takes little more than its file."""

import subprocess
import sys

import pytest

from ternarybert.packed import write
from tests.packed.models import BASE, random_model

READ = """
import pathlib, re, sys
from ternarybert.packed import read

def peak():  # of this process alone; getrusage would begin with that of the one which started it
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) * 1024

before = peak()
kept = read(sys.argv[1])
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.linux_only("the memory of the process is read from /proc")
@pytest.mark.parametrize(
    ("bits", "packing"), [("2-2-8", "plain"), ("2-2-8", "dense"), ("3-3-8", "plain"), ("8-8-8", "plain")]
)
def test_memory_of_reading(tmp_path, bits, packing):
    write(tmp_path / "p", random_model(BASE, bits, packing=packing))
    done = subprocess.run([sys.executable, "-c", READ, str(tmp_path / "p")], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 1.5 * (tmp_path / "p" / "model.safetensors").stat().st_size
