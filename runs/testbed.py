"""Which change of the recipe helps: every candidate on small beds, at equal CPU time, in minutes and with little noise.

Beds:

    text   distill an embedder on short texts without labels (batches of 64); judged by the mean cosine to the teacher
           on unseen texts, whose standard error is far below that of any task score, and by the Spearman correlation on
           pairs held out of STS-B's training set
    stsb   distill a fine-tuned teacher on training rows; judged on others, held out of the training set (the teacher
    sst2   has not seen them either)

No dev set is read. The models are all-MiniLM-L6-v2 (6 layers) and gte-small (12 layers), see runs/encoders.py.

A candidate is one of `PARTS`, or several joined by "+"; `base` is the recipe `default`. Every candidate trains for the
same CPU time; the teacher's outputs are computed once before. Results are JSON files; a finished candidate is not
repeated, an interrupted one starts over. The table of all results is written after every candidate.

    python runs/testbed.py GLUE_FOLDER --gte gte-small [--models minilm gte] [--beds text stsb sst2]
        [--candidates base variance variance+row] [--cpu-minutes 8] [--seeds 42] [--threads 1] [--out runs/out/testbed]
        [--table]
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

from glue import data_of, log, user_errors

from ternarybert.data import TaskData, load_glue
from ternarybert.demo.sources import encoder_folder
from ternarybert.errors import DataError, DivergedError, OptionError
from ternarybert.recipe import PRESETS, Recipe

PARTS: dict[str, dict[str, str]] = {
    "base": {},
    "variance": {"distill.normalize": "variance"},
    "maps": {"distill.attention_loss": "maps"},
    "row": {"weight.granularity": "row"},
    "lat": {"weight.method": "lat", "embedding.method": "lat"},
    "lsq": {"weight.method": "lsq", "embedding.method": "lsq"},
    "intervention20": {"distill.intervention": "0.2"},
    "intervention40": {"distill.intervention": "0.4"},
    "cosine": {"schedule.decay": "cosine"},
    "tail10": {"schedule.tail": "0.1", "schedule.tail_rate": "0.05"},
    "tail20": {"schedule.tail": "0.2", "schedule.tail_rate": "0.1"},
    "average05": {"schedule.average": "0.05"},
    "average20": {"schedule.average": "0.2"},
    "clip0.5": {"weight.clip": "0.5"},
    "clip0.2": {"weight.clip": "0.2"},
    "rate1e-4": {"schedule.learning_rate": "1e-4"},
    "rate4e-4": {"schedule.learning_rate": "4e-4"},
    "rate8e-4": {"schedule.learning_rate": "8e-4"},
    "batch16": {"schedule.batch_size": "16"},
    "batch32": {"schedule.batch_size": "32"},
    "logits10": {"distill.logits": "10"},
    "no-attention": {"distill.attention": "0"},
}
ALONE = [name for name in PARTS if name not in ("no-attention", "batch16", "batch32", "logits10")]
TOGETHER = [
    "variance+row",
    "variance+maps",
    "variance+maps+row",
    "variance+row+lsq",
    "variance+row+lat",
    "variance+row+intervention40",
    "variance+row+cosine",
    "variance+row+tail10",
    "variance+row+average05",
    "variance+row+clip0.5",
    "variance+row+rate4e-4",
    "variance+maps+row+lsq+tail10",
]
BEDS, MODELS = ("text", "stsb", "sst2"), ("minilm", "gte")
TEXTS, UNSEEN, PAIRS = 6400, 500, 1000  # training texts, unseen texts, held-out pairs
TASK_ROWS, HELD_OUT = 4000, 1000
TEACHER_SEED, SPLIT_SEED = 42, 0
_SOURCES = ("cola", "sst2", "mrpc", "rte")  # of texts, beside STS-B


def recipe_of(candidate: str, bed: str) -> Recipe:
    """The recipe `default` with the changes of all parts of a candidate."""
    changes: dict[str, str] = {"schedule.batch_size": "64"} if bed == "text" else {}
    for part in candidate.split("+"):
        if part not in PARTS:
            raise OptionError(f"unknown part '{part}' of a candidate; known: {', '.join(PARTS)}")
        changes |= PARTS[part]
    return PRESETS["default"].override(changes)


def split_pairs(folder: str) -> tuple[Any, Any]:
    """STS-B's training rows: those to train on, and pairs held out of them."""
    train = load_glue("stsb", folder).train
    assert train is not None
    rows = train.shuffle(seed=SPLIT_SEED)
    return rows.select(range(PAIRS, len(rows))), rows.select(range(PAIRS))


def texts_data(folder: str, count: int = TEXTS) -> TaskData[Any]:
    """Short texts to train on, unseen texts, and held-out pairs, whose texts are in neither of the two."""
    from datasets import Dataset
    from vectors import VectorTask

    rest, pairs = split_pairs(folder)
    held = {*pairs["text"], *pairs["text_pair"]}
    tables = [rest, *(load_glue(name, folder).train for name in _SOURCES)]
    columns = [table[name] for table in tables for name in ("text", "text_pair") if name in table.column_names]
    texts = sorted({text for column in columns for text in column if len(text.split()) > 3} - held)
    shuffled = Dataset.from_dict({"text": texts}).shuffle(seed=SPLIT_SEED)
    unseen, train = shuffled.select(range(UNSEEN)), shuffled.select(range(UNSEEN, UNSEEN + count))
    return TaskData(VectorTask("text"), train, {"unseen": unseen, "pairs": pairs})


def task_data(task: str, folder: str) -> TaskData[Any]:
    """Rows of a task to train on and others to judge by, all from its training set."""
    data = data_of(task, folder)
    assert data.train is not None
    rows = data.train.shuffle(seed=SPLIT_SEED)
    last = min(len(rows), HELD_OUT + TASK_ROWS)
    return TaskData(data.task, rows.select(range(HELD_OUT, last)), {"held-out": rows.select(range(HELD_OUT))})


class Bed:
    """A model and data, with a teacher whose outputs are computed once."""

    def __init__(self, name: str, model: str, source: str, options: argparse.Namespace) -> None:
        self.name, self.model, self.source, self.options = name, model, source, options
        self.folder = Path(options.out) / f"{model}-{name}"
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, candidate: str, seed: int) -> Path:
        """The file with the result of a candidate."""
        return self.folder / f"{candidate}-{self.options.cpu_minutes:g}min-seed{seed}.json"

    def prepare(self) -> None:
        """Load or make the teacher, score it, and compute its outputs for all training rows."""
        from transformers import AutoTokenizer

        from ternarybert.student import expose_scores
        from ternarybert.training.teacher import Teacher

        if self.name == "text":
            from vectors import load_embedder

            data, tokenizer = (
                texts_data(self.options.glue, self.options.texts),
                AutoTokenizer.from_pretrained(self.source),
            )
            self.teacher = Teacher.of(expose_scores(load_embedder(self.source)), data, tokenizer)
        else:
            data = task_data(self.name, self.options.glue)
            self.teacher = Teacher.load(self._finetuned(data), data)
        log(f"{self.model} {self.name}: the teacher has {self.teacher.scores()}")
        self.teacher.evaluate(time.process_time)
        self.teacher.fill_cache()

    def _finetuned(self, data: TaskData[Any]) -> str:
        from ternarybert.training.finetune import finetune
        from ternarybert.training.options import TrainingOptions

        folder = self.folder / "teacher"
        if not folder.exists():
            log(f"{self.model} {self.name}: fine-tuning the teacher")
            resume = folder.with_name("teacher.work").exists()
            options = TrainingOptions(device="cpu", seed=TEACHER_SEED, evaluations=3, keep_last=True, resume=resume)
            finetune(self.source, data, folder, None, options)
        return str(folder)

    def run(self, candidate: str, seed: int) -> None:
        """Train a candidate and write its result."""
        from ternarybert.student import make_student
        from ternarybert.training.models import set_dropout
        from ternarybert.training.options import TrainingOptions
        from ternarybert.training.ternarize import student_trainer
        from ternarybert.training.time_budget import TimeBudget

        recipe = recipe_of(candidate, self.name).for_task(two_stages=False)
        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        model = make_student(self._copy(), recipe)
        set_dropout(model, recipe.schedule.dropout)
        budget = TimeBudget(60 * self.options.cpu_minutes, 1, time.process_time)
        options = TrainingOptions(device="cpu", seed=seed, evaluations=1, keep_last=True, time_budget=budget)
        result: dict[str, Any] = {"candidate": candidate, "seed": seed, "recipe": recipe.to_dict()}
        result |= {"teacher": self.teacher.scores(), "cpu_minutes": self.options.cpu_minutes}
        try:
            trainer = student_trainer(self.teacher, model, recipe, options, work, save=False)
            trainer.train()
            report = trainer.report()
            result |= {"scores": report.final.sets, "steps": report.steps, "cpu_seconds": round(budget.spent, 1)}
            result["losses"] = [dict(entry) for entry in report.losses or ()][-5:]
        except DivergedError as error:  # a result, too
            result["failed"] = str(error)
        self.path(candidate, seed).write_text(json.dumps(result, indent=1), encoding="utf-8")
        shutil.rmtree(work)

    def _copy(self) -> Any:
        """A second copy of the teacher's model, to become a student."""
        from ternarybert.training.models import load_trained

        if self.name == "text":
            from vectors import load_embedder

            return load_embedder(self.source)
        return load_trained(self.folder / "teacher", self.teacher.head)


def table(out: Path) -> str:
    """All results as Markdown: a table for each model and bed, the best candidate first."""
    parts = []
    for folder in sorted(path for path in out.glob("*-*") if path.is_dir()):
        results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
        if results:
            parts.append("\n".join([f"## {folder.name}", "", *_rows(results)]))
    return "\n\n".join(parts) + "\n"


def _rows(results: list[dict[str, Any]]) -> list[str]:
    done = [result for result in results if "scores" in result]
    names = [(part, name) for part, scores in (done or [{"scores": {}}])[0]["scores"].items() for name in scores]
    heads = [f"{part} {name}" for part, name in names]
    lines = [f"| candidate | CPU min | seed | steps | {' | '.join(heads)} |", f"|---|---|---|---|{'---|' * len(heads)}"]
    if results:
        teacher = [results[0]["teacher"].get(part, {}).get(name) for part, name in names]
        lines.append(f"| teacher | | | | {' | '.join('' if v is None else f'{v:.2f}' for v in teacher)} |")
    best = sorted(done, key=lambda result: -_rank(result))
    for result in best:
        values = " | ".join(f"{result['scores'][part][name]:.2f}" for part, name in names)
        lines.append(
            f"| {result['candidate']} | {result['cpu_minutes']:g} | {result['seed']} | {result['steps']} | {values} |"
        )
    failed = [result for result in results if "failed" in result]
    return lines + [
        f"| {r['candidate']} | {r['cpu_minutes']:g} | {r['seed']} | failed: {r['failed']} |" for r in failed
    ]


def _rank(result: dict[str, Any]) -> float:
    """What candidates are judged by first: cosine or agreement with the teacher, which have the least noise."""
    first = next(iter(result["scores"].values()))
    return float(first.get("cosine", first.get("agreement", 0.0)))


def write_tables(out: Path) -> None:
    """Write table.md and all results in one file."""
    results = {
        str(path.relative_to(out)): json.loads(path.read_text("utf-8")) for path in sorted(out.glob("*-*/*.json"))
    }
    (out / "table.md").write_text(table(out), encoding="utf-8")
    (out / "table.json").write_text(json.dumps(results, indent=1), encoding="utf-8")


def source_of(model: str, options: argparse.Namespace) -> str:
    """The folder of a pre-trained encoder."""
    if model == "minilm":
        return str(encoder_folder())
    if options.gte is None or not Path(options.gte).is_dir():
        raise OptionError(f"--gte FOLDER is needed, got '{options.gte}'; runs/encoders.py makes it")
    return str(options.gte)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("glue", help="folder with the GLUE tasks in their original layout")
    parser.add_argument("--gte", help="folder of gte-small, made by runs/encoders.py")
    parser.add_argument("--models", nargs="+", default=["minilm"], choices=MODELS)
    parser.add_argument("--beds", nargs="+", default=["text"], choices=BEDS)
    parser.add_argument("--candidates", nargs="+", default=[*ALONE, *TOGETHER])
    parser.add_argument("--cpu-minutes", type=float, default=8.0, help="CPU time of each candidate")
    parser.add_argument("--seeds", nargs="+", type=int, default=[42])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--texts", type=int, default=TEXTS, help="texts to train on")
    parser.add_argument("--out", default="runs/out/testbed")
    parser.add_argument("--table", action="store_true", help="only print the table of finished candidates")
    options = parser.parse_args()
    if not options.table:
        run_all(options)
    print(table(Path(options.out)))


def run_all(options: argparse.Namespace) -> None:
    """Run what is not done yet; the teacher of a bed is only prepared where something is left to do."""
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()  # that a pooler is left out is known
    if not Path(options.glue).is_dir():
        raise DataError(f"there is no folder {options.glue}")
    for name in options.candidates:
        recipe_of(name, "text")  # a mistyped one is an error now
    for model in options.models:
        for name in options.beds:
            bed = Bed(name, model, source_of(model, options), options)
            left = [(c, seed) for c in options.candidates for seed in options.seeds if not bed.path(c, seed).exists()]
            if left:
                bed.prepare()
            for candidate, seed in left:
                log(f"{model} {name}: {candidate}, seed {seed}")
                bed.run(candidate, seed)
                write_tables(Path(options.out))


if __name__ == "__main__":
    with user_errors():
        main()
