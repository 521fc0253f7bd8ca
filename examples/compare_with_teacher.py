"""Where does a ternary student disagree with its teacher? Scores of both on a labeled table, and the rows that differ.

python examples/compare_with_teacher.py teacher small test.csv

The student runs in the native engine, the teacher in torch. Needs the `train` extra for the teacher.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from transformers import pipeline

import ternarybert


def main() -> None:
    """Parse, answer with both models, print accuracies, agreement and the texts on which they differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", help="the fine-tuned model: a folder or a hub id")
    parser.add_argument("student", help="the packed folder")
    parser.add_argument("table", type=Path, help="a CSV file with the columns text and label")
    arguments = parser.parse_args()

    with arguments.table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]

    classify = pipeline("text-classification", model=arguments.teacher)
    teacher = [answer["label"] for answer in classify(texts, truncation=True)]
    with ternarybert.load(arguments.student) as model:
        student = [answer.label for answer in model.predict(texts)]

    print(f"teacher accuracy {_equal(teacher, labels):.1f} %")
    print(f"student accuracy {_equal(student, labels):.1f} %")
    print(f"agreement        {_equal(student, teacher):.1f} %")
    for text, label, theirs, ours in zip(texts, labels, teacher, student, strict=True):
        if theirs != ours:
            print(f"{text}: label {label}, teacher {theirs}, student {ours}")


def _equal(first: list[str], second: list[str]) -> float:
    return 100 * sum(a == b for a, b in zip(first, second, strict=True)) / len(first)


if __name__ == "__main__":
    main()
