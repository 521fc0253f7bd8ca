"""Measure loading BERT-base, packed and in float32: CPU time and peak memory.

Every number comes from a separate process, so that nothing is cached except files, for all alike. transformers maps a
float32 file and reads nothing until a weight is used, so loading is also measured with every weight used once.

    python bench/packed.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ternarybert.bench.random_model import SHAPES, packed_model, random_weights
from ternarybert.packed import write
from ternarybert.packed.hf_folder import repack, write_plain

# Preparation that is not measured, and the measured step.
STEPS = {
    "packed.read": ("from ternarybert.packed import read", "read(folder)"),
    "safetensors.numpy": (
        "from safetensors.numpy import load_file",
        "load_file(folder + '/ternarybert.safetensors')",
    ),
    "transformers": (
        "import ternarybert.hf, transformers; from transformers.models.bert import modeling_bert\n"
        "transformers.utils.logging.disable_progress_bar()",
        "transformers.AutoModelForSequenceClassification.from_pretrained(folder)",
    ),
}
STEPS["transformers, used"] = (
    STEPS["transformers"][0],
    f"[float(weight.sum()) for weight in {STEPS['transformers'][1]}.parameters()]",
)
PROGRAM = """
import json, sys, time
from ternarybert.bench.process import peak_memory
folder = sys.argv[1]
{prepare}
before, start, wall = peak_memory(), time.process_time(), time.perf_counter()
result = {step}
print(json.dumps([time.process_time() - start, time.perf_counter() - wall, peak_memory() - before]))
"""


def measure(step: str, folder: Path, runs: int = 5) -> tuple[float, float, float]:
    """CPU seconds, wall seconds and bytes of peak memory beyond the imports; the best of some runs."""
    prepare, action = STEPS[step]
    program = PROGRAM.format(prepare=prepare, step=action)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    results = []
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True, env=environment
        )
        results.append(json.loads(done.stdout.splitlines()[-1]))
    return min(r[0] for r in results), min(r[1] for r in results), min(r[2] for r in results)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folders = {name: Path(temporary) / name for name in ("plain", "dense", "half", "float32")}
        model = packed_model(SHAPES["base"], random_weights(SHAPES["base"]))
        write(folders["plain"], model)
        write(folders["dense"], repack(model, "dense"))
        write(folders["half"], repack(model, "dense"), half=True)
        write_plain(folders["float32"], model, tokenizer=folders["plain"])
        print(f"{'step':<20}{'folder':<10}{'file MB':>9}{'cpu s':>8}{'wall s':>8}{'peak MB':>9}{'peak / file':>13}")
        for step, folder in [
            *(("packed.read", name) for name in ("plain", "dense", "half")),
            ("safetensors.numpy", "float32"),
            *(("transformers", name) for name in ("plain", "dense", "half", "float32")),
            *(("transformers, used", name) for name in ("plain", "float32")),
        ]:
            size = next(folders[folder].glob("*.safetensors")).stat().st_size
            cpu, wall, peak = measure(step, folders[folder])
            print(f"{step:<20}{folder:<10}{size / 1e6:9.1f}{cpu:8.3f}{wall:8.3f}{peak / 1e6:9.1f}{peak / size:13.2f}")


if __name__ == "__main__":
    main()
