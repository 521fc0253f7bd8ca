"""The promises about reading a packed BERT-base: CPU seconds on one core, and memory."""

import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.numpy

from ternarybert.families import is_quantized
from ternarybert.packed import read, write
from ternarybert.packed.codec import Coding, pack, unpack
from ternarybert.packed.hf_folder import unpack_to_float

from .models import BASE, bert_shapes, random_model


def seconds(action):
    start = time.process_time()
    action()
    return time.process_time() - start


@pytest.mark.slow
@pytest.mark.parametrize(
    "coding",
    [Coding(2), Coding(2, packing="dense"), Coding(3), Coding(3, levels="log"), Coding(4), Coding(8)],
    ids=str,
)
def test_bert_base_packs_and_unpacks_in_under_a_second(coding):
    rng = np.random.default_rng(0)
    shapes = [shape for name, shape in bert_shapes(BASE).items() if is_quantized(name)]
    size = len(coding.alphabet)
    matrices = [coding.alphabet[rng.integers(0, size, shape, dtype=np.uint8)] for shape in shapes]
    packed = []
    assert seconds(lambda: packed.extend(pack(codes, coding) for codes in matrices)) < 1
    assert seconds(lambda: [unpack(rows, shape[1], coding) for rows, shape in zip(packed, shapes, strict=True)]) < 1


@pytest.mark.slow
def test_bert_base_is_read_faster_than_its_float32_file(tmp_path):
    model = random_model(BASE)
    write(tmp_path / "packed", model)
    safetensors.numpy.save_file(unpack_to_float(model), tmp_path / "floats.safetensors")
    ours = min(seconds(lambda: read(tmp_path / "packed")) for _ in range(3))
    theirs = min(seconds(lambda: safetensors.numpy.load_file(tmp_path / "floats.safetensors")) for _ in range(3))
    assert ours < theirs


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
@pytest.mark.parametrize(
    ("bits", "packing"), [("2-2-8", "plain"), ("2-2-8", "dense"), ("3-3-8", "plain"), ("8-8-8", "plain")]
)
def test_memory_of_reading(tmp_path, bits, packing):
    write(tmp_path / "p", random_model(BASE, bits, packing=packing))
    done = subprocess.run([sys.executable, "-c", READ, str(tmp_path / "p")], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 1.5 * (tmp_path / "p" / "ternarybert.safetensors").stat().st_size
