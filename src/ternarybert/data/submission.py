"""A submission to the GLUE server: a zip archive with one TSV file per test set, in the server's names and formats.

    index	prediction
    0	1

The index counts the rows of the test file from 0. Predictions are class numbers for CoLA, SST-2, MRPC and QQP, class
names for MNLI, QNLI and RTE and for the diagnostic set (AX), which a model for MNLI answers, and for STS-B a number
from 0 to 5 with three decimals. WNLI is not among the paper's tasks; `WNLI_FILLER` is its most frequent class, so that
an archive is complete.

The bytes depend on the predictions alone: the same ones from two engines give the same archive.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.data.classification import ClassificationTask
from ternarybert.data.glue import GLUE, Glue, find_folder, glue_record, hub_part, texts_of_table
from ternarybert.data.labels import match_labels
from ternarybert.data.metrics import predict_from_logits
from ternarybert.data.readers import read_plain_tsv
from ternarybert.data.task import TaskData, make_dataset
from ternarybert.errors import DataError, OutputError
from ternarybert.storage import replace_file

if TYPE_CHECKING:
    from datasets import Dataset

# By task: the server's name of each test set, and its file without .tsv (beside the training file, or in that folder).
TEST_SETS: Mapping[str, Mapping[str, str]] = {
    "cola": {"CoLA": "test"},
    "sst2": {"SST-2": "test"},
    "mrpc": {"MRPC": "test"},
    "stsb": {"STS-B": "test"},
    "qqp": {"QQP": "test"},
    "mnli": {"MNLI-m": "test_matched", "MNLI-mm": "test_mismatched", "AX": "diagnostic"},
    "qnli": {"QNLI": "test"},
    "rte": {"RTE": "test"},
}
NAMED = ("mnli", "qnli", "rte")  # tasks whose classes are submitted by name
DIAGNOSTIC = "AX"
WNLI_ROWS = 146
WNLI_FILLER = ("WNLI", ["0"] * WNLI_ROWS)
_HIGHEST = 5.0  # of STS-B's scores
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the date of every file, so that equal archives are equal bytes


def load_glue_test(name: str, folder: str | Path | None = None) -> TaskData[ClassificationTask]:
    """The test rows of a GLUE task, without labels, by the server's names of the sets; without a folder from the hub.

    Only the diagnostic set may be missing.
    """
    record = glue_record(name)
    sets = TEST_SETS[record.task.name]
    if folder is None:
        return TaskData(record.task, None, {stem: _from_hub(record, stem, part) for stem, part in sets.items()})
    files = [f"{part}.tsv" for part in sets.values()]
    place, evals = find_folder(record, Path(folder), files), {}
    for stem, part in sets.items():
        path = next((each for each in _places(place, part) if each.is_file()), None)
        if path is not None:
            table = read_plain_tsv(path)
            evals[stem] = make_dataset(texts_of_table(record.task, table), None)
        elif stem != DIAGNOSTIC:
            raise DataError(f"{place} has no {part}.tsv, the test set that is submitted as {stem}.tsv")
    return TaskData(record.task, None, evals)


def _places(folder: Path, part: str) -> list[Path]:
    """Where a test file may be; the diagnostic set is published in a folder of its own, beside the tasks'."""
    return [folder / f"{part}.tsv", folder.parent / part / f"{part}.tsv"]


def _from_hub(record: Glue, stem: str, part: str) -> Dataset:
    if stem == DIAGNOSTIC:
        return hub_part(record, "test", config="ax").remove_columns("label")
    return hub_part(record, part).remove_columns("label")


def as_submitted(
    original: ClassificationTask, fitted: ClassificationTask, predictions: Mapping[str, Any]
) -> dict[str, list[str]]:
    """What the server reads for every test set: `predictions` are logits, of the task as fitted to the model."""
    if original.regression:
        numbers = {stem: predict_from_logits(logits, True) for stem, logits in predictions.items()}
        return {stem: [f"{min(_HIGHEST, max(0.0, n)):.3f}" for n in values] for stem, values in numbers.items()}
    names, own = original.class_names, fitted.class_names
    ids = {name: i for i, name in enumerate(own)} if set(names) == set(own) else match_labels(names, own)
    written = {ids[name]: name if original.name in NAMED else str(i) for i, name in enumerate(names)}
    classes = {stem: predict_from_logits(logits, False) for stem, logits in predictions.items()}
    return {stem: [written[int(one)] for one in values] for stem, values in classes.items()}


def add_to_archive(path: Path, submitted: Mapping[str, Sequence[str]]) -> list[str]:
    """Write these sets into the archive, beside those of other tasks that it has; the names of all that it now has."""
    with replace_file(path) as draft:  # locked before the archive is read: another run may add to it, too
        files = _read_archive(path)
        for stem, values in submitted.items():
            lines = ["index\tprediction", *(f"{i}\t{value}" for i, value in enumerate(values))]
            files[f"{stem}.tsv"] = "".join(f"{line}\n" for line in lines).encode()
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(files):
                archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), files[name], zipfile.ZIP_DEFLATED)
    return sorted(files)


def check_archive(path: Path) -> None:
    """Refuse a path at which something else is, before anything is computed."""
    if path.suffix != ".zip":
        raise OutputError(f"the archive must be a .zip file, got '{path}'")
    _read_archive(path)


def _read_archive(path: Path) -> dict[str, bytes]:
    if not path.exists():
        return {}
    known = {f"{stem}.tsv" for sets in TEST_SETS.values() for stem in sets} | {f"{WNLI_FILLER[0]}.tsv"}
    try:
        with zipfile.ZipFile(path) as archive:
            foreign = sorted(set(archive.namelist()) - known)
            if foreign:
                raise OutputError(f"{path} holds {foreign[0]}, so it is no GLUE submission; choose another file")
            return {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, OSError) as error:
        raise OutputError(f"{path} is not a readable archive ({error}); choose another file") from None


def missing_sets(present: Sequence[str]) -> list[str]:
    """The files that the server expects and an archive does not have."""
    every = [stem for record in GLUE.values() for stem in TEST_SETS[record.task.name]]
    return [f"{stem}.tsv" for stem in [*every, WNLI_FILLER[0]] if f"{stem}.tsv" not in present]
