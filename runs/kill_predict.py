"""Kills `predict` at random moments: the file that is finished in the end is that of a run alone, and nothing is left.

    python runs/kill_predict.py FOLDER 300 [--rows 20000] [--seed 0]

FOLDER is a packed classifier. Every kill is a SIGKILL between the start and seven tenths of a whole run; the next run
resumes. A file that was finished in between is compared and removed.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def start(model: str, source: Path, output: Path) -> subprocess.Popen[bytes]:
    """A run of `predict` in a process of its own."""
    command = [sys.executable, "-m", "ternarybert", "predict", model, "--input", str(source), "--output", str(output)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    """Kill runs, and compare what they leave."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("kills", type=int)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, killed, finished = random.Random(options.seed), 0, 0
    with tempfile.TemporaryDirectory() as place:
        source, alone, output = (Path(place, name) for name in ("in.csv", "alone.csv", "out.csv"))
        rows = (f"{i},the film was good and the plot {i % 97}\n" for i in range(options.rows))
        source.write_text("id,text\n" + "".join(rows))
        before = time.monotonic()
        assert start(options.model, source, alone).wait() == 0
        whole, wanted = time.monotonic() - before, alone.read_bytes()
        while killed < options.kills or not output.exists():
            process = start(options.model, source, output)
            try:
                seconds = rng.uniform(0, 0.7 * whole) if killed < options.kills else None
                assert process.wait(seconds) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                killed += 1
            if output.exists():
                finished += 1
                assert output.read_bytes() == wanted
                if killed < options.kills:
                    output.unlink()
        left = sorted(path.name for path in Path(place).iterdir())
        assert left == ["alone.csv", "in.csv", "out.csv"], left
    print(f"{killed} kills, {finished} files finished, all equal to that of a run alone ({whole:.1f} s)")


if __name__ == "__main__":
    main()
