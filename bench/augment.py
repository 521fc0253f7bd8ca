"""Throughput of the masked-language-model source against asking about one word at a time, and whole tasks in seconds.

Both sides ask the same model about the same words of the same texts and must find the same candidates. The loop is
fed with ready piece ids, so that only the model is measured; "as released" keeps the graph for gradients, as the script
that came with TinyBERT does, "without gradients" is the same loop without that mistake. They take turns with the
source, and medians of processor time are compared. The model has random weights, because speed does not depend on them.

    python bench/augment.py GLUE/RTE [--shape mini|small|base] [--texts N] [--rounds N] [--threads N]
    python bench/augment.py GLUE/RTE --whole --embeddings TEACHER [--glove FILE]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from ternarybert.augment import MaskedModel, Settings, augment_table, load_source, open_task
from ternarybert.augment.words import Place, find_words

SHAPES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "base": (12, 768),
}  # layers and width of the published BERTs
VOCABULARY = 30522


def make_tokenizer(texts: Sequence[str]) -> Any:
    """A tokenizer of BERT's size to which the words of the texts are single pieces."""
    words = dict.fromkeys(place.word.lower() for text in texts for place in find_words(text, ()))
    letters = [chr(c) for c in range(33, 127)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *words]
    known = dict.fromkeys(pieces)
    known.update(dict.fromkeys(f"[unused{i}]" for i in range(VOCABULARY - len(known))))
    ids = {piece: i for i, piece in enumerate(known)}
    inner = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    special = {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    names = {f"{name}_token": token for name, token in special.items()}
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=512, **names)


def make_model(shape: str) -> Any:
    layers, width = SHAPES[shape]
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    return BertForMaskedLM(config).eval()


def one_at_a_time(source: MaskedModel, places: Sequence[Place]) -> list[list[int]]:
    """The model's best pieces for each word, a word at a time."""
    found = []
    for question in source._encode(places):
        if question is not None:
            inputs, at = source._template.inputs([question])
            scores = source.model(**inputs).logits[0, at[0]]
            found.append(sorted(scores.argsort(descending=True)[: source.count].tolist()))
    return found


def compare(shape: str, texts: Sequence[str], rounds: int) -> None:
    tokenizer = make_tokenizer(texts)
    source = MaskedModel(make_model(shape), tokenizer)
    places = [place for text in texts for place in find_words(text)]
    words = whole(source, places)

    def without_gradients() -> None:
        with torch.inference_mode():
            one_at_a_time(source, places)

    jobs: dict[str, Callable[[], object]] = {
        "one word at a time, as released": lambda: one_at_a_time(source, places),
        "one word at a time, without gradients": without_gradients,
        "augment, batches of 32": lambda: source.candidates(places),
    }
    seconds = measure(jobs, rounds)
    fastest = seconds["augment, batches of 32"]
    print(f"\n{shape} ({SHAPES[shape][0]} layers of {SHAPES[shape][1]}), {len(texts)} texts, {words} words")
    for name, taken in seconds.items():
        print(f"{name:40} {words / taken:8.1f} words/s {taken / fastest:6.1f} x the time")


def whole(source: MaskedModel, places: Sequence[Place]) -> int:
    """Check that both ways find the same candidates; give the number of words."""
    with torch.inference_mode():
        pieces = one_at_a_time(source, places)
    expected = [tuple(source._words[i] for i in best if i in source._words) for best in pieces]
    if source.candidates(places) != expected:
        raise SystemExit("the two ways disagree")
    return len(expected)


def measure(jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median processor seconds of each job; jobs take turns, so that a slow moment of the machine hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            begin = time.process_time()
            job()
            seconds[name].append(time.process_time() - begin)
    return {name: statistics.median(times) for name, times in seconds.items()}


def whole_task(name: str, folder: Path, embeddings: str | None, masked_model: str | None, glove: str | None) -> None:
    """Augment all training rows of a task with its number of variants."""
    begin, cpu = time.perf_counter(), time.process_time()
    source = load_source(masked_model=masked_model, embeddings=embeddings, glove=glove)
    data = open_task(name, folder)
    variants = data.task.augment_variants if data.task else 20
    with tempfile.TemporaryDirectory() as out:
        summary = augment_table(data, Path(out) / "train.tsv", source, Settings(variants))
    wall, busy = time.perf_counter() - begin, time.process_time() - cpu
    print(f"{source.description}\n{name}, N={variants}: {summary.rows} rows became {summary.written}")
    print(f"{wall:.1f} s, {busy:.1f} s of processor time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of a GLUE task")
    parser.add_argument("--task", default="rte")
    parser.add_argument("--whole", action="store_true", help="augment the whole task instead of comparing")
    parser.add_argument("--embeddings")
    parser.add_argument("--masked-model")
    parser.add_argument("--glove")
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {options.threads} threads")
    if options.whole:
        whole_task(options.task, options.data, options.embeddings, options.masked_model, options.glove)
    else:
        rows = open_task(options.task, options.data).rows
        compare(options.shape, [text for row in rows for text in row][: options.texts], options.rounds)


if __name__ == "__main__":
    main()
