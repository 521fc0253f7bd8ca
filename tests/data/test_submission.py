"""The archive for the GLUE server: names, header, order and values of every task, from made test files."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ternarybert.data import GLUE
from ternarybert.data.submission import (
    TEST_SETS,
    WNLI_FILLER,
    add_to_archive,
    as_submitted,
    check_archive,
    load_glue_test,
    missing_sets,
)
from ternarybert.errors import DataError, OutputError

# The header lines of the published test files, and the class that the third row's logits point to.
HEADERS = {
    "cola": ("CoLA/test.tsv", "index sentence"),
    "sst2": ("SST-2/test.tsv", "index sentence"),
    "mrpc": ("MRPC/test.tsv", "index #1_ID #2_ID #1_String #2_String"),
    "stsb": ("STS-B/test.tsv", "index genre filename year old_index source1 source2 sentence1 sentence2"),
    "qqp": ("QQP/test.tsv", "id question1 question2"),
    "qnli": ("QNLI/test.tsv", "index question sentence"),
    "rte": ("RTE/test.tsv", "index sentence1 sentence2"),
}
EXPECTED = {
    "cola": ["0", "1", "1"],
    "sst2": ["0", "1", "1"],
    "mrpc": ["0", "1", "1"],
    "stsb": ["2.346", "0.000", "5.000"],
    "qqp": ["0", "1", "1"],
    "mnli": ["entailment", "contradiction", "neutral"],
    "qnli": ["entailment", "not_entailment", "not_entailment"],
    "rte": ["entailment", "not_entailment", "not_entailment"],
}
LOGITS = {
    1: np.array([[2.3456], [-0.4], [7.1]], dtype=np.float32),
    2: np.array([[1.0, 0.0], [0.0, 1.0], [-2.0, 3.0]], dtype=np.float32),
    3: np.array([[3.0, 0.0, 1.0], [0.0, 1.0, 2.0], [0.0, 5.0, 2.0]], dtype=np.float32),
}


def write_test_file(path: Path, header: str, rows: int = 3) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = [name.replace("_", " ") if name.startswith("#") else name for name in header.split()]
    lines = ["\t".join(columns)]
    lines += ["\t".join([str(i), *(f'a "text {i} of {name}' for name in columns[1:])]) for i in range(rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_mnli(folder: Path, diagnostic: str | None) -> None:
    header = "index promptID pairID genre sentence1_binary_parse sentence2_parse sentence1 sentence2"
    for part in ("matched", "mismatched"):
        write_test_file(folder / "MNLI" / f"test_{part}.tsv", header)
    if diagnostic is not None:
        write_test_file(folder / diagnostic, "index sentence1 sentence2")


@pytest.mark.parametrize("name", sorted(HEADERS))
def test_a_task_has_the_servers_file(tmp_path, name):
    file, header = HEADERS[name]
    write_test_file(tmp_path / file, header)
    data = load_glue_test(name, tmp_path)
    (stem,) = data.evals
    rows = data.evals[stem]
    assert len(rows) == 3
    assert "label" not in rows.column_names
    assert rows["text"][2].startswith('a "text 2 of')
    submitted = as_submitted(data.task, data.task, {stem: LOGITS[data.task.num_labels]})
    assert add_to_archive(tmp_path / "out.zip", submitted) == [f"{stem}.tsv"]
    lines = zipfile.ZipFile(tmp_path / "out.zip").read(f"{stem}.tsv").decode().split("\n")
    assert lines == ["index\tprediction", *(f"{i}\t{value}" for i, value in enumerate(EXPECTED[name])), ""]
    assert file.startswith(stem)


@pytest.mark.parametrize("diagnostic", ["diagnostic/diagnostic.tsv", "MNLI/diagnostic.tsv", None])
def test_mnli_has_two_sets_and_the_diagnostic_one(tmp_path, diagnostic):
    write_mnli(tmp_path, diagnostic)
    data = load_glue_test("MNLI", tmp_path)
    stems = ["MNLI-m", "MNLI-mm"] + ([] if diagnostic is None else ["AX"])
    assert list(data.evals) == stems
    submitted = as_submitted(data.task, data.task, dict.fromkeys(stems, LOGITS[3]))
    assert submitted == dict.fromkeys(stems, EXPECTED["mnli"])
    add_to_archive(tmp_path / "out.zip", submitted)
    assert set(zipfile.ZipFile(tmp_path / "out.zip").namelist()) == {f"{stem}.tsv" for stem in stems}


def test_a_models_own_order_and_spelling_of_labels_do_not_show():
    task = GLUE["mnli"].task
    other = replace(task, labels=("Contradiction", "ENTAILMENT", "neutral"))
    logits = np.eye(3, dtype=np.float32)
    assert as_submitted(task, other, {"AX": logits}) == {"AX": ["contradiction", "entailment", "neutral"]}
    mrpc = GLUE["mrpc"].task
    turned = replace(mrpc, labels=("equivalent", "not_equivalent"))
    assert as_submitted(mrpc, turned, {"MRPC": np.eye(2)}) == {"MRPC": ["1", "0"]}


def test_tasks_are_added_and_replaced_and_the_bytes_depend_on_nothing_else(tmp_path):
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    add_to_archive(first, {"RTE": ["entailment"]})
    add_to_archive(first, {"CoLA": ["0", "1"]})
    add_to_archive(first, {"RTE": ["not_entailment"]})
    add_to_archive(second, {"CoLA": ["0", "1"], "RTE": ["not_entailment"]})
    assert first.read_bytes() == second.read_bytes()
    assert not list(tmp_path.glob("*.part"))


def test_what_an_archive_lacks(tmp_path):
    everything = {stem: ["0"] for sets in TEST_SETS.values() for stem in sets}
    present = add_to_archive(tmp_path / "a.zip", everything)
    assert missing_sets(present) == ["WNLI.tsv"]
    assert missing_sets(add_to_archive(tmp_path / "a.zip", dict([WNLI_FILLER]))) == []
    assert len(present) == 10


def test_what_is_refused(tmp_path):
    write_test_file(tmp_path / "MNLI" / "test_matched.tsv", "index sentence1 sentence2")
    with pytest.raises(DataError, match="test_mismatched"):
        load_glue_test("mnli", tmp_path)
    with pytest.raises(DataError, match=r"test\.tsv"):
        load_glue_test("rte", tmp_path)
    with pytest.raises(OutputError, match="notes"):
        check_archive(tmp_path / "notes")
    (tmp_path / "text.zip").write_text("no archive")
    with pytest.raises(OutputError, match=r"text\.zip"):
        check_archive(tmp_path / "text.zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("holiday.jpg", b"")
    with pytest.raises(OutputError, match=r"holiday\.jpg"):
        check_archive(tmp_path / "other.zip")
    assert (tmp_path / "other.zip").exists()
