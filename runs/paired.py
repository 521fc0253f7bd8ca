"""Is one packed student significantly better than another? A paired comparison on question answering.

The students answer the test questions of runs/squad.py in the native engine, as they are scored there. Questions about
one text are not independent, so the standard error is clustered by text; it says nothing about other seeds.

    python runs/paired.py SQUAD_FOLDER STUDENT STUDENT [STUDENT ...] [--threads 2]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from glue import user_errors
from numpy.typing import NDArray
from squad import data_of

import ternarybert
from ternarybert.data import QuestionAnsweringTask, TaskData
from ternarybert.data.squad.metric import score_squad
from ternarybert.errors import UnsupportedModelError
from ternarybert.runtime.model import Answerer


def f1_of(folder: str, data: TaskData[QuestionAnsweringTask], threads: int) -> NDArray[np.float64]:
    """The F1 of every test question, in percent."""
    questions = data.evals["test"]
    with ternarybert.load(folder, num_threads=threads) as model:
        if not isinstance(model, Answerer):
            raise UnsupportedModelError(f"'{folder}' has no question-answering head")
        predictions = list(model.predictions(questions, data.task.with_model_settings(model.config)))
    pairs = zip(questions, predictions, strict=True)
    return np.array([score_squad([question], [prediction.text])["f1"] for question, prediction in pairs])


def difference(first: NDArray[np.float64], second: NDArray[np.float64], texts: Sequence[str]) -> tuple[float, float]:
    """The mean of first - second, and its standard error clustered by text."""
    gain = first - second
    of = np.unique(texts, return_inverse=True)[1]
    sums = np.bincount(of, gain - gain.mean())
    return float(gain.mean()), float(np.sqrt(len(sums) / (len(sums) - 1) * np.sum(sums**2)) / len(gain))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("squad", help="folder with dev-v1.1.json, zipped or not")
    parser.add_argument("students", nargs="+", help="folders of at least two packed students")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if len(set(options.students)) < max(2, len(options.students)):
        parser.error(f"give at least two different students, not {' '.join(options.students)}")
    data = data_of(options.squad)
    texts = [one.context for one in data.evals["test"]]
    f1 = {student: f1_of(student, data, options.threads) for student in options.students}
    print("| first | second | F1 of the first | of the second | difference | standard error |")
    print("|---|---|---|---|---|---|")
    for first, second in combinations(f1, 2):
        gain, error = difference(f1[first], f1[second], texts)
        means = f"{f1[first].mean():.2f} | {f1[second].mean():.2f}"
        print(f"| {first} | {second} | {means} | {gain:+.2f} | {error:.2f} |")


if __name__ == "__main__":
    with user_errors():
        main()
