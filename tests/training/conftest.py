from pathlib import Path

import pytest
from datasets import Dataset

from ternarybert.data import ClassificationTask, TaskData
from tests import tiny

GOOD, BAD = ("good", "great", "fun", "liked"), ("bad", "awful", "dull", "hated")


def rows(count: int, start: int = 0) -> Dataset:
    """Made reviews of varying length whose label is in one of their words."""
    texts, labels = [], []
    for i in range(start, start + count):
        word = (GOOD if i % 2 else BAD)[i // 2 % 4]
        texts.append(" ".join(["the film was", word] + ["and the plot was very"] * (i % 4)))
        labels.append(i % 2)
    return Dataset.from_dict({"text": texts, "label": labels})


@pytest.fixture
def data() -> TaskData:
    task = ClassificationTask(
        "made", ("text",), "label", ("neg", "pos"), ("accuracy",), max_length=32, batch_size=8, epochs=2
    )
    return TaskData(task, rows(64), {"dev": rows(20, start=100)})


@pytest.fixture
def teacher(tmp_path: Path) -> str:
    return tiny.save(tmp_path / "teacher", hidden_dropout_prob=0.1)
