"""A small world for the commands: tiny random BERTs, and made tables whose label hides in one word of the text.

Most tests run the command in this process, which spares them the import of torch. What a kill does, and what several
processes do together, is seen in processes of their own.
"""

import csv
import os
import random
import signal
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import huggingface_hub.constants
import pytest
import torch

from ternarybert.cli import main
from tests import tiny

MOODS = {"joy": ["good", "great", "fun"], "anger": ["bad", "awful", "hated"], "so so": ["dull", "not", "is"]}
FILLERS = ["the", "film", "plot", "was", "and", "very", "it", "we"]
HEADER = ["What they said", "mood (by hand)"]
COLUMNS = ["--text", HEADER[0], "--label", HEADER[1]]


def save_classifier(folder, labels, **changes):
    """A classifier with random answers; distillation does not mind."""
    names = dict(enumerate(labels))
    ids = {name: i for i, name in names.items()}
    return tiny.save(folder, num_labels=len(labels), id2label=names, label2id=ids, **changes)


def sentences(count, seed=0):
    """Rows of text and mood."""
    rng, rows = random.Random(seed), []
    for i in range(count):
        mood = list(MOODS)[i % len(MOODS)]
        words = [rng.choice(FILLERS) for _ in range(rng.randint(2, 9))]
        words.insert(rng.randint(0, len(words)), rng.choice(MOODS[mood]))
        rows.append((" ".join(words), mood))
    return rows


def write_csv(path, header, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """A pre-trained encoder, so to speak."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = tiny.tokenizer()
    tiny.bert(vocab_size=len(tokenizer)).bert.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def teacher(tmp_path_factory):
    return save_classifier(tmp_path_factory.mktemp("models") / "moody", list(MOODS), hidden_dropout_prob=0.1)


@pytest.fixture
def table(tmp_path):
    return write_csv(tmp_path / "mail.csv", HEADER, sentences(64))


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """No network, and the number of threads that was before."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def run(capfd, monkeypatch):
    """Run a command in this process; give its exit code, output and errors."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["ternarybert", *map(str, arguments)])
        capfd.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capfd.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return call


@pytest.fixture
def fails(run):
    """Run a command that must fail as a user's mistake should: one line, exit code 2."""

    def call(*arguments):
        result = run(*arguments)
        assert result.code == 2, result.err
        assert "Traceback" not in result.err
        lines = [line for line in result.err.splitlines() if line.startswith("ternarybert: ")]
        assert len(lines) == 1, result.err
        assert result.err.splitlines()[-1] == lines[0]
        return lines[0]

    return call


def start(*command):
    """Start Python with a command in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        # A suite that runs in a shell's background is told to ignore Ctrl-C, and would hand that on.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
