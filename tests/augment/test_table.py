import json
import random
import signal

import pytest

from ternarybert.augment import VariantOptions, augment_table, open_file, open_task
from ternarybert.augment import variants as variants_module
from ternarybert.data import GLUE, load_glue, load_table
from ternarybert.data.readers import read_table
from ternarybert.errors import DataError, OutputError
from tests.augment import language
from tests.augment.circle import circle
from tests.data.conftest import made_glue, write_glue  # noqa: F401
from tests.processes import fork

TEXTS = ["wordaa wordab, wordac", 'He said "wordaa"; wordbc\'s', "😀", "ünï wordad"]
SETTINGS = VariantOptions(variants=3)


@pytest.fixture
def source():
    return circle()


def run(path, out, source, **names):
    return augment_table(open_file(path, **names), out, source, SETTINGS)


def check(before, after, text="text"):
    """Every row is there, first as it was and then with other texts; all else is copied."""
    rows = [dict(zip(table.columns, values, strict=True)) for table in (before, after) for values in _values(table)]
    old, new = rows[: len(before)], rows[len(before) :]
    at = 0
    for row in old:
        assert new[at] == row
        at += 1
        while at < len(new) and {**new[at], text: ""} == {**row, text: ""} and new[at] not in old:
            at += 1
    assert at == len(new) > len(old)


def _values(table):
    return zip(*table.columns.values(), strict=True)


FILES = {
    "train.csv": 'id,text,label\n1,"{0}",a\n2,"{1}",b\n3,{2},a\n4,{3},b\n',
    "semicolons.csv": "id;text;label\n1;{0};a\n2;{2};b\n4;{3};b\n",
    "train.tsv": "id\ttext\tlabel\n1\t{0}\ta\n2\t{2}\tb\n4\t{3}\tb\n",
    "quoted.tsv": 'id\ttext\tlabel\n1\t"{0}"\ta\n2\t"{1}"\tb\n4\t"two\nlines wordad"\tb\n',
    "stray.tsv": 'id\ttext\tlabel\n1\t"{0}\ta\n2\tsaid "wordaa" {2}\tb\n4\t{3}\tb\n',
}


@pytest.mark.parametrize("name", FILES)
def test_tables_are_written_as_they_were(tmp_path, source, name):
    quotes = FILES[name].count('"{1}"')
    texts = [text.replace('"', '""') if quotes else text for text in TEXTS]
    path = tmp_path / name
    path.write_text(FILES[name].format(*texts), encoding="utf-8")
    out = tmp_path / f"augmented{path.suffix}"
    summary = run(path, out, source)
    before, after = read_table(path), read_table(out)
    check(before, after)
    assert (summary.rows, summary.written, summary.resumed, summary.path) == (len(before), len(after), 0, out)
    assert out.read_text(encoding="utf-8").split("\n")[0] == path.read_text(encoding="utf-8").split("\n")[0]
    if name in ("train.tsv", "stray.tsv"):  # whoever knows no quotes reads it too
        assert all(line.count("\t") == 2 for line in out.read_text(encoding="utf-8").splitlines())
        assert '""' not in out.read_text(encoding="utf-8")


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_line_breaks_of_any_kind_inside_texts_are_read_again(tmp_path, source, suffix):
    path, out = tmp_path / "a.jsonl", tmp_path / f"b.{suffix}"
    texts = ["wordaa\rwordab", "wordaa\nwordab", "\r\nwordac wordad\r"]
    path.write_text("".join(json.dumps({"text": text, "label": "x"}) + "\n" for text in texts))
    run(path, out, source)
    check(read_table(path), read_table(out))


def test_json_lines_keep_their_types(tmp_path, source):
    path, out = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    rows = [{"text": text, "label": i, "more": [i, None], "score": 0.5} for i, text in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(path, out, source)
    check(read_table(path), read_table(out))
    assert "😀" in out.read_text(encoding="utf-8")


def test_plain_text(tmp_path, source):
    path, out = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    run(path, out, source)
    check(read_table(path), read_table(out))


def test_parquet_becomes_json_lines(tmp_path, source):
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": TEXTS, "label": [0, 1, 0, 1]}), path)
    run(path, tmp_path / "b.jsonl", source)
    check(read_table(path), read_table(tmp_path / "b.jsonl"))
    with pytest.raises(DataError, match=r"\.parquet"):
        run(path, tmp_path / "b.parquet", source)


def test_pairs_and_labels(tmp_path, source):
    path, out = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("premise,hypothesis,label\nwordaa wordab,wordba wordbb,yes\nwordac,wordbc wordbd,no\n")
    run(path, out, source)
    data = load_table(out, eval_share=0)
    assert data.task.labels == ("no", "yes")
    assert data.task.text_columns == ("premise", "hypothesis")
    changed = [row for row in data.train if row["label"] == 1][1:]
    assert any(row["text"] != "wordaa wordab" for row in changed)
    assert any(row["text_pair"] != "wordba wordbb" for row in changed)


def test_empty_texts_are_copied(tmp_path, source):
    path, out = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("text,label\n,x\n   ,y\nwordaa,x\n")
    run(path, out, source)
    assert out.read_text().startswith("text,label\n,x\n   ,y\nwordaa,x\n")


def test_what_cannot_be_written_is_said_before_the_work(tmp_path, source):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "two\nlines", "label": 1}))
    with pytest.raises(DataError, match=r"b\.txt.* text, label"):
        run(path, tmp_path / "b.txt", source)
    path.write_text(json.dumps({"text": 5}) + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl, line 1: .*\b5\b"):
        run(path, tmp_path / "b.jsonl", source, text="text")
    assert not (tmp_path / "b.jsonl").exists()


@pytest.mark.parametrize("name", sorted(GLUE))
def test_glue_files_can_be_read_as_glue(made_glue, tmp_path, source, name):  # noqa: F811
    record = GLUE[name]
    out = tmp_path / "out" / "train.tsv"
    summary = augment_table(open_task(name, made_glue), out, source, SETTINGS)
    assert out.read_bytes() == (made_glue / record.folder / "train.tsv").read_bytes().removeprefix(b"\xef\xbb\xbf")
    data = load_glue(name, out.parent)
    assert len(data.train) == summary.written  # no word is known to the source, so nothing was added
    assert open_task(name, made_glue / record.folder).table.columns == open_task(name, made_glue).table.columns


def test_glue_variants(tmp_path, source):
    folder = write_glue(tmp_path, "CoLA", "train", ['gj04\t1\t\twordaa "wordab.', "gj04\t0\t*\twordac wordad"])
    out = tmp_path / "out" / "train.tsv"
    summary = augment_table(open_task("cola", folder), out, source, SETTINGS)
    data = load_glue("cola", out.parent)
    assert len(data.train) == summary.written > 4
    assert out.read_text().startswith('gj04\t1\t\twordaa "wordab.\n')
    assert all(line.startswith(("gj04\t1\t\t", "gj04\t0\t*\t")) for line in out.read_text().splitlines())


def test_glue_rows_from_elsewhere_are_match_case_the_file(made_glue, tmp_path, source, monkeypatch):  # noqa: F811
    data = {name: load_glue(name, made_glue) for name in ("cola", "rte")}
    monkeypatch.setattr("ternarybert.augment.table.load_glue", lambda name, folder: data[name])
    for name, first in (("cola", "\t1\t\tThe more, the merrier."), ("rte", "sentence1\tsentence2\tlabel")):
        out = tmp_path / name / "train.tsv"
        augment_table(open_task(name), out, source, SETTINGS)
        assert out.read_text().splitlines()[0] == first
        assert load_glue(name, out.parent).train.to_dict() == data[name].train.to_dict()


def test_a_task_without_training_rows(tmp_path):
    folder = write_glue(tmp_path, "RTE", "dev")
    with pytest.raises(DataError, match=r"RTE.* rte"):
        open_task("rte", folder)


KILLED = """
import os, signal, sys
from ternarybert.augment import MaskedModel, VariantOptions, augment_table, open_file, variants

model, path, out, stop = *sys.argv[1:4], float(sys.argv[4])
variants._CHUNK_WORDS = 100
source = MaskedModel.load(model, batch_size=int(sys.argv[5]))

def progress(done, total):
    if done >= stop:
        os.kill(os.getpid(), signal.SIGKILL)

augment_table(open_file(path), out, source, VariantOptions(variants=5), progress=progress)
"""


def test_killed_and_resumed_gives_the_same_file(tmp_path, masked, masked_folder):
    """Also where every run has batches of another size."""
    path, source, generator = tmp_path / "a.csv", masked, random.Random(3)
    lines = [f"{language.sentence(generator)},{i}\n" for i in range(200)]
    path.write_text("text,label\n" + "".join(lines))
    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    augment_table(open_file(path), whole, source, VariantOptions(variants=5))
    for stop, batch in ((20, 1), (90, 7), (170, 64)):
        killed = fork("-c", KILLED, masked_folder, path, out, stop, batch)
        _, err = killed.communicate()
        assert killed.returncode == -signal.SIGKILL, err
        assert not out.exists()
    rows_done = []
    summary = augment_table(
        open_file(path), out, source, VariantOptions(variants=5), progress=lambda done, total: rows_done.append(done)
    )
    assert out.read_bytes() == whole.read_bytes()
    assert summary.resumed == rows_done[0] >= 140
    assert summary.written == whole.read_text().count("\n") - 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "out.csv", "whole.csv"]


@pytest.mark.parametrize("change", ["seed", "source", "rows", "variants"])
def test_another_job_is_not_continued(tmp_path, source, monkeypatch, change):
    monkeypatch.setattr(variants_module, "_CHUNK_WORDS", 1)
    path, out = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("text,label\nwordaa wordab,1\nwordac,2\n")

    def stop(done, total):
        if done >= 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        augment_table(open_file(path), out, source, VariantOptions(), progress=stop)
    if change == "rows":
        path.write_text("text,label\nwordaa wordab,1\nwordac,3\n")
    settings = {"seed": VariantOptions(seed=1), "variants": VariantOptions(variants=2)}.get(change, VariantOptions())
    with pytest.raises(OutputError, match=r"b\.csv\.part"):
        augment_table(open_file(path), out, circle(count=3) if change == "source" else source, settings)
