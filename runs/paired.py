"""How sure it is that one packed student answers better than another: their difference question by question.

The students answer the test questions of runs/squad.py by the runtime. The standard error of a difference is taken over
questions, as if those about one text were independent; it says nothing about other seeds.

    python runs/paired.py SQUAD_FOLDER STUDENT STUDENT [STUDENT ...] [--threads 2]
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path

import numpy as np
from glue import mistakes
from numpy.typing import NDArray
from squad import data_of

import ternarybert
from ternarybert.tasks.squad_metrics import score_squad
from ternarybert.tasks.squad_questions import Question


def f1_of(folder: Path, questions: list[Question], threads: int) -> NDArray[np.float64]:
    """The F1 of every question, in percent."""
    with ternarybert.load(folder, num_threads=threads) as model:
        answers = model.predict([(one.question, one.context) for one in questions])
    pairs = zip(questions, answers, strict=True)
    return np.array([score_squad([one], [answer.text or ""])["f1"] for one, answer in pairs])


def line(first: Path, second: Path, f1: dict[Path, NDArray[np.float64]]) -> str:
    """Both means, their difference and its standard error."""
    gain = f1[first] - f1[second]
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    means = " | ".join(f"{f1[one].mean():.2f}" for one in (first, second))
    return f"| {first.name} | {second.name} | {means} | {gain.mean():+.2f} | {error:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("squad", help="folder with dev-v1.1.json, zipped or not")
    parser.add_argument("students", nargs="+", type=Path, help="folders of packed students, two at least")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if len(options.students) < 2:
        parser.error("one student has no difference: name two at least")
    questions = data_of(options.squad).evals["test"]
    f1 = {student: f1_of(student, questions, options.threads) for student in options.students}
    print("| first | second | F1 of the first | F1 of the second | difference | standard error |")
    print("|---|---|---|---|---|---|")
    for first, second in combinations(options.students, 2):
        print(line(first, second, f1))


if __name__ == "__main__":
    with mistakes():
        main()
