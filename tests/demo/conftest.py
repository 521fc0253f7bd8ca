"""The demo with a tiny model and a handful of made reviews: the same way in seconds."""

import csv
import random

import huggingface_hub.constants
import pytest
import torch

from ternarybert.demo import sources
from ternarybert.demo.demo import DemoPlan
from tests import tiny

TINY_PLAN = DemoPlan(
    "tiny", 0, train_rows=48, dev_rows=8, test_rows=20, teacher_epochs=1, student_epochs=1, evaluations=2,
    sentences=3, rounds=2,
)  # fmt: skip
GOOD, BAD = ("good", "great", "fun"), ("bad", "awful", "dull")


def made_rows(count=140):
    rng, rows = random.Random(0), {}
    while len(rows) < count:
        label = len(rows) % 2
        words = rng.choices(tiny.WORDS, k=rng.randint(4, 9))
        rows[" ".join([*words, rng.choice(GOOD if label else BAD)])] = label
    return rows


@pytest.fixture
def reviews_file(tmp_path):
    path = tmp_path / "combined.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "source"])
        writer.writerow(["a long review of another site", 1, "imdb"])
        writer.writerows((text, label, "rotten_tomatoes") for text, label in made_rows().items())
    return path


@pytest.fixture
def reviews(reviews_file):
    return sources.read_reviews(reviews_file)


@pytest.fixture
def encoder(tmp_path):
    folder, tokenizer = tmp_path / "encoder", tiny.tokenizer()
    tiny.bert(vocab_size=len(tokenizer)).bert.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """No network, and the number of threads that was before."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
