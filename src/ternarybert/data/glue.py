"""The eight GLUE tasks of the paper, one record each, and their rows from the original files or from the hub.

The TSV files are read by column name and without quoting: their quotes are part of the texts and often unbalanced.
Labels are numbered as the hub numbers them, because that is where most teachers were trained: MNLI is entailment,
neutral, contradiction. (The paper's released code sorts them: contradiction, entailment, neutral. With a teacher that
names its labels the difference disappears in `align_labels`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ternarybert.data.classification import ClassificationTask
from ternarybert.data.labels import as_number, listed
from ternarybert.data.readers import Table, read_plain_tsv
from ternarybert.data.task import TaskData, import_datasets, make_dataset
from ternarybert.errors import DataError, HubError, LabelError, suggest, suggest_path

if TYPE_CHECKING:
    from datasets import Dataset

HUB = "nyu-mll/glue"
_NLI = ("entailment", "not_entailment")
_SENTENCES = ("sentence1", "sentence2")


@dataclass(frozen=True)
class Glue:
    """A task and where its rows are."""

    task: ClassificationTask
    folder: str  # its name in the GLUE folder
    header: tuple[str, ...] | None = None  # the columns of files that have no header line
    hub_texts: tuple[str, ...] | None = None  # where the hub's names of the columns are others
    evals: tuple[str, ...] = ("dev",)  # <name>.tsv; on the hub "dev" is spelled "validation"
    broken_share: float = 0.0  # of lines that are known to be damaged
    unsplit: str | None = None  # a file of training and dev rows together, told apart by dev_ids.tsv


_RECORDS = (
    Glue(
        ClassificationTask(
            name="cola",
            text_columns=("sentence",),
            label_column="label",
            labels=("unacceptable", "acceptable"),
            metrics=("matthews",),
            max_length=64,
            batch_size=16,
            augment=True,
            augment_variants=30,
        ),
        folder="CoLA",
        header=("source", "label", "mark", "sentence"),
    ),
    Glue(
        ClassificationTask(
            name="sst2",
            text_columns=("sentence",),
            label_column="label",
            labels=("negative", "positive"),
            metrics=("accuracy",),
            max_length=64,
            augment=True,
            augment_variants=20,
        ),
        folder="SST-2",
    ),
    Glue(
        ClassificationTask(
            name="mrpc",
            text_columns=("#1 String", "#2 String"),
            label_column="Quality",
            labels=("not_equivalent", "equivalent"),
            metrics=("accuracy", "f1"),
            augment=True,
            augment_variants=30,
        ),
        folder="MRPC",
        hub_texts=_SENTENCES,
        unsplit="msr_paraphrase_train.txt",  # as Microsoft publishes it
    ),
    Glue(
        ClassificationTask(
            name="stsb",
            text_columns=_SENTENCES,
            label_column="score",
            labels=None,
            metrics=("spearman", "pearson"),
            regression=True,
            augment=False,
            augment_variants=30,
        ),
        folder="STS-B",
    ),
    Glue(
        ClassificationTask(
            name="qqp",
            text_columns=("question1", "question2"),
            label_column="is_duplicate",
            labels=("not_duplicate", "duplicate"),
            metrics=("accuracy", "f1"),
            augment=False,
            augment_variants=10,
        ),
        folder="QQP",
        broken_share=1e-3,  # as published, a few dozen questions with a line break inside fell apart
    ),
    Glue(
        ClassificationTask(
            name="mnli",
            text_columns=_SENTENCES,
            label_column="gold_label",
            labels=("entailment", "neutral", "contradiction"),
            metrics=("accuracy",),
            augment=False,
            augment_variants=10,
        ),
        folder="MNLI",
        hub_texts=("premise", "hypothesis"),
        evals=("dev_matched", "dev_mismatched"),
    ),
    Glue(
        ClassificationTask(
            name="qnli",
            text_columns=("question", "sentence"),
            label_column="label",
            labels=_NLI,
            metrics=("accuracy",),
            augment=True,
            augment_variants=20,
        ),
        folder="QNLI",
    ),
    Glue(
        ClassificationTask(
            name="rte",
            text_columns=_SENTENCES,
            label_column="label",
            labels=_NLI,
            metrics=("accuracy",),
            augment=True,
            augment_variants=30,
        ),
        folder="RTE",
    ),
)
GLUE: dict[str, Glue] = {record.task.name: record for record in _RECORDS}


def glue_task(name: str) -> ClassificationTask:
    """Find a GLUE task by name, in any spelling: sst2, SST-2, STS_B."""
    return glue_record(name).task


def load_glue(name: str, folder: str | Path | None = None) -> TaskData[ClassificationTask]:
    """Read a GLUE task from its folder, from the folder of all GLUE tasks, or without a folder from the hub.

    Parts whose files are missing are left out; a folder with no part of the task is an error.
    """
    record = glue_record(name)
    if folder is None:
        return _from_hub(record)
    train, evals = _from_files(record, find_folder(record, Path(folder), _files(record)))
    return TaskData(record.task, train, evals)


def _key(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "")


def glue_record(name: str) -> Glue:
    """A task and where its rows are, by name in any spelling."""
    record = GLUE.get(_key(name))
    if record is None:
        raise DataError(f"unknown task '{name}'{suggest(_key(name), GLUE)}")
    return record


def find_folder(record: Glue, folder: Path, files: Sequence[str]) -> Path:
    """The folder of a task, itself or inside the folder of all tasks: the one that has any of the files."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder{suggest_path(folder)}")
    inside = [path for path in sorted(folder.iterdir()) if path.is_dir() and _key(path.name) == record.task.name]
    for candidate in (folder, *inside):
        if any((candidate / file).is_file() for file in files):
            return candidate
    raise DataError(f"{folder} holds no {record.folder}: expected {' or '.join(files)}, or {record.folder}/")


def _files(record: Glue) -> list[str]:
    files = [f"{part}.tsv" for part in ("train", *record.evals)]
    return [*files, record.unsplit] if record.unsplit else files


def _from_files(record: Glue, folder: Path) -> tuple[Dataset | None, dict[str, Dataset]]:
    paths = {part: folder / f"{part}.tsv" for part in ("train", *record.evals)}
    read = {part: read_plain_tsv(p, record.header, record.broken_share) for part, p in paths.items() if p.is_file()}
    tables = read or _split_by_ids(folder / str(record.unsplit))
    rows = {part: _rows(record.task, table) for part, table in tables.items()}
    return rows.pop("train", None), rows


def _split_by_ids(path: Path) -> dict[str, Table]:
    """Split Microsoft's paraphrase file as GLUE does, by a list of the dev set's pairs of sentence ids.

    Without the list all rows train, and Microsoft's own test file, which has labels, is the evaluation.
    """
    table = read_plain_tsv(path)
    list_file, test_file = path.with_name("dev_ids.tsv"), path.with_name(path.name.replace("train", "test"))
    if not list_file.is_file():
        return {"train": table} | ({"test": read_plain_tsv(test_file)} if test_file.is_file() else {})
    ids = ("#1 ID", "#2 ID")
    wanted = set(_pairs(read_plain_tsv(list_file, ids), ids))
    in_dev = [pair in wanted for pair in _pairs(table, ids)]
    if not any(in_dev) or all(in_dev):
        raise DataError(f"{list_file} does not split {path.name}: it lists {sum(in_dev)} of its {len(in_dev)} pairs")
    return {"train": table.select([not yes for yes in in_dev]), "dev": table.select(in_dev)}


def _pairs(table: Table, names: tuple[str, str]) -> list[tuple[object, object]]:
    return list(zip(table.column(names[0]), table.column(names[1]), strict=True))


def texts_of_table(task: ClassificationTask, table: Table) -> list[list[str]]:
    """One or two columns of texts."""
    return [[str(value) for value in table.column(name)] for name in task.text_columns]


def _rows(task: ClassificationTask, table: Table) -> Dataset:
    texts = texts_of_table(task, table)
    written = [str(value) for value in table.column(task.label_column or "label")]
    ids = {str(i): i for i in range(task.num_labels or 0)} | {name: i for i, name in enumerate(task.labels or ())}
    labels = [as_number(label) if task.regression else ids.get(label) for label in written]
    if None in labels:
        row = labels.index(None)
        expected = "a number" if task.regression else f"one of {listed(task.labels or ())}"
        raise LabelError(f"{table.location(row)}: the label is '{written[row]}'; expected {expected}")
    return make_dataset(texts, [label for label in labels if label is not None])


def _from_hub(record: Glue) -> TaskData[ClassificationTask]:
    evals = {name: hub_part(record, name.replace("dev", "validation")) for name in record.evals}
    return TaskData(record.task, hub_part(record, "train"), evals)


def hub_part(record: Glue, part: str, config: str | None = None) -> Dataset:
    """The rows of one part of a task, such as "train"; `config` is its name on the hub, where it is another."""
    datasets = import_datasets()
    try:
        parts = datasets.load_dataset(HUB, config or record.task.name)
    except OSError as error:  # no network, or no room for the download
        reason = str(error).strip().split("\n")[0]
        raise HubError(
            f"cannot get {HUB} from the hub ({reason}); pass a folder with the original files: "
            f"{record.folder}/train.tsv, {record.folder}/{record.evals[0]}.tsv"
        ) from error
    return _hub_rows(record, parts[part])


def _hub_rows(record: Glue, rows: Dataset) -> Dataset:
    texts = record.hub_texts or record.task.text_columns
    kind = import_datasets().Value("float64" if record.task.regression else "int64")
    names = dict(zip(texts, ("text", "text_pair"), strict=False))
    return rows.select_columns([*texts, "label"]).rename_columns(names).cast_column("label", kind)
