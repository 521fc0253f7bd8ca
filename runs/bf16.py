"""What --bf16 gains and costs on this machine: students of one teacher in float32 and in bfloat16, time and scores.

On a CPU, bfloat16 is used for the gradients of linear layers only. It pays where the CPU multiplies it (avx512_bf16,
amx_bf16); whether the scores stay has to be measured there. Until it was, the default is off on every CPU.

Each pair of students has the same seed, rows and steps. A finished student is not repeated.

    python runs/bf16.py GLUE_FOLDER [--tasks mrpc stsb] [--seeds 42 1 2] [--max-steps -1] [--threads 2] [--out runs/out]
        [--table]
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from glue import TASKS, data_of, log, settings, teacher_of, user_errors

from ternarybert.recipe import PRESETS

FLAGS = ("avx512_bf16", "amx_bf16")
PRECISIONS = {"float32": False, "bf16": True}


def cpu_flags(path: str = "/proc/cpuinfo") -> list[str]:
    """Which of the instructions that bfloat16 needs to be fast this CPU has."""
    try:
        words = set(Path(path).read_text(encoding="utf-8", errors="replace").split())
    except OSError:  # not Linux
        return []
    return [flag for flag in FLAGS if flag in words]


def run(options: argparse.Namespace) -> None:
    """Make the students that do not exist yet."""
    from ternarybert.training.ternarize import ternarize

    for task in options.tasks:
        parent, data = Path(options.out) / task, data_of(task, options.glue)
        teacher = teacher_of(data, parent)
        for seed in options.seeds:
            for name, bf16 in PRECISIONS.items():
                output = parent / folder_of(name, seed)
                if not output.exists():
                    log(f"{task}: {output.name}")
                    chosen = settings(output, seed=seed, bf16=bf16, max_steps=options.max_steps, keep_last=True)
                    ternarize(teacher, data, output, PRESETS["default"], chosen)


def folder_of(precision: str, seed: int) -> str:
    """The name of a student's folder."""
    return f"precision-{precision}-seed-{seed}"


def table(out: Path, tasks: list[str], seeds: list[int]) -> str:
    """Scores of the last students, bfloat16 less float32, and how many times faster; with the CPU's instructions."""
    lines = [
        f"CPU has {', '.join(cpu_flags()) or 'neither ' + ' nor '.join(FLAGS)}.",
        "",
        "| task | seed | float32 | bf16 | difference | rows/s float32 | rows/s bf16 | times faster |",
        "|---|---|---|---|---|---|---|---|",
    ]
    differences = []
    for task in tasks:
        for seed in seeds:
            paths = [out / task / folder_of(name, seed) / "metrics.json" for name in PRECISIONS]
            if all(path.is_file() for path in paths):
                wide, narrow = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
                scores = [_score(each) for each in (wide, narrow)]
                speeds = [each["examples_per_second"] for each in (wide, narrow)]
                differences.append(scores[1] - scores[0])
                lines.append(
                    f"| {task} | {seed} | {scores[0]:.2f} | {scores[1]:.2f} | {differences[-1]:+.2f} "
                    f"| {speeds[0]:.1f} | {speeds[1]:.1f} | {speeds[1] / speeds[0]:.2f} |"
                )
    if len(differences) > 1:
        error = statistics.stdev(differences) / len(differences) ** 0.5
        lines += ["", f"Mean difference {statistics.mean(differences):+.2f}, standard error {error:.2f}."]
    return "\n".join(lines)


def _score(metrics: dict[str, Any]) -> float:
    return float(metrics["student"]["final"]["scores"][metrics["metric"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("glue", help="folder with the GLUE tasks in their original layout")
    parser.add_argument("--tasks", nargs="+", default=["mrpc", "stsb", "sst2"], choices=TASKS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[42, 1, 2])
    parser.add_argument("--max-steps", type=int, default=-1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", default="runs/out")
    parser.add_argument("--table", action="store_true", help="only print the table of finished students")
    options = parser.parse_args()
    if not options.table:
        import torch

        torch.set_num_threads(options.threads)
        run(options)
    print(table(Path(options.out), options.tasks, options.seeds))


if __name__ == "__main__":
    with user_errors():
        main()
