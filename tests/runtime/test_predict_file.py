"""`predict_file` from Python: what it writes, returns and reports on the way, and when it resumes."""

import csv
import json
import shutil
import subprocess
import sys

import pytest

from ternarybert.data.readers import open_rows, read_table
from ternarybert.data.writers import AnswerWriter
from ternarybert.errors import DataError, NotPackedError, OptionError, OutputError
from ternarybert.runtime import load
from ternarybert.runtime import predict_file as module
from ternarybert.runtime.predict_file import NoAnswer, PredictFileResult, answer_columns, predict_file, predict_rows

TEXTS = ["the film was good", "awful, dull plot", "", "i liked it"]


@pytest.fixture
def table(tmp_path):
    with (tmp_path / "mails.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), *enumerate(TEXTS * 10)])
    return tmp_path / "mails.csv"


@pytest.fixture
def stop(monkeypatch):
    """Ends runs like Ctrl-C when all rows are written, and lets them end again."""

    def interrupted(*_):
        raise KeyboardInterrupt

    def switch(on):
        if on:
            monkeypatch.setattr(AnswerWriter, "finish", interrupted)
        else:
            monkeypatch.undo()

    return switch


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("kind", [str, "path", "model"])
def test_a_model_by_its_folder_or_loaded(folders, table, tmp_path, kind):
    folder = folders()
    with load(folder) as model:
        given = {"path": folder, "model": model}.get(kind, str(folder))
        result = predict_file(given, str(table), str(tmp_path / "o.jsonl"))
        expected = model.predict(TEXTS)  # the model is still open
    assert (result.rows, result.resumed, result.empty) == (40, 0, 10)
    assert result.seconds > 0
    assert result.rows_per_second == pytest.approx(40 / result.seconds)
    for row, text, answer in zip(lines(tmp_path / "o.jsonl"), TEXTS, expected, strict=False):
        assert row["text"] == text
        assert (row["prediction"], row["score"]) == ((answer.label, answer.score) if text else (None, None))


def test_the_columns_of_the_answers(folders):
    with load(folders()) as model:
        assert answer_columns(model) == {"prediction": "string", "score": "double"}
        assert list(answer_columns(model, all_scores=True))[2:] == [f"score {name}" for name in model.labels]
    with load(folders("ForQuestionAnswering")) as model:
        assert list(answer_columns(model)) == ["prediction", "score", "start", "end"]


def test_progress_counts_what_is_written(folders, table, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_STEP_ROWS", 7)
    seen = []
    result = predict_file(folders(), table, tmp_path / "o.csv", progress=lambda *now: seen.append(now))
    assert [now.rows for now, _ in seen] == [0, 7, 14, 21, 28, 35, 40]
    assert seen[0] == (PredictFileResult(), 0.0)
    assert seen[-1][0].empty == result.empty == 10
    shares = [share for _, share in seen]
    assert shares == sorted(shares) and shares[-1] == 1


def test_the_same_call_resumes(folders, table, tmp_path, stop, monkeypatch):
    out, seen = tmp_path / "o.csv", []
    stop(True)
    with pytest.raises(KeyboardInterrupt):
        predict_file(folders(), table, out)
    stop(False)
    result = predict_file(folders(), table, out, progress=lambda *now: seen.append(now[0]))
    assert (result.rows, result.resumed) == (40, 40)
    assert seen[0].rows == 40
    with pytest.raises(OutputError, match=r"o\.csv exists"):
        predict_file(folders(), table, out)
    assert predict_file(folders(), table, out, force=True).resumed == 0


def change_tokenizer(folder):
    path = folder / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"good"', '"goof"'), encoding="utf-8")


def change_weights(folder):
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"].pop("sha256")
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("change", [change_tokenizer, change_weights, "columns", "scores", "input"])
def test_another_job_does_not_resume(folders, table, tmp_path, stop, change):
    folder, options = tmp_path / "model", {}
    shutil.copytree(folders(), folder)
    stop(True)
    with pytest.raises(KeyboardInterrupt):
        predict_file(folder, table, tmp_path / "o.csv")
    stop(False)
    if callable(change):
        change(folder)
    elif change == "input":
        table.write_text(table.read_text().replace("dull", "fine"))
    else:
        options = {"columns": {"text": "id"}, "scores": {"all_scores": True}}[change]
    with pytest.raises(OutputError, match=r"o\.csv\.part"):
        predict_file(folder, table, tmp_path / "o.csv", **options)
    assert predict_file(folder, table, tmp_path / "o.csv", force=True, **options).resumed == 0


def test_weights_without_a_hash_decide_too(folders, table, tmp_path, stop):
    folder = tmp_path / "model"
    shutil.copytree(folders(), folder)
    change_weights(folder)
    stop(True)
    with pytest.raises(KeyboardInterrupt):
        predict_file(folder, table, tmp_path / "o.csv")
    stop(False)
    weights = bytearray((folder / "ternarybert.safetensors").read_bytes())
    weights[-1] ^= 1  # of a scale
    (folder / "ternarybert.safetensors").write_bytes(weights)
    with load(folders()) as other:  # whatever the damaged weights are, they are others
        other.folder = folder
        with pytest.raises(OutputError, match=r"o\.csv\.part"):
            predict_file(other, table, tmp_path / "o.csv")


@pytest.mark.parametrize("value", [0, 0.0, False])
def test_a_number_is_a_text(folders, tmp_path, value):
    (tmp_path / "x.jsonl").write_text(json.dumps({"text": value}) + '\n{"text": null}\n')
    result = predict_file(folders(), tmp_path / "x.jsonl", tmp_path / "o.jsonl", text="text")
    assert (result.rows, result.empty) == (2, 1)
    with load(folders()) as model:
        assert lines(tmp_path / "o.jsonl")[0]["prediction"] == model.predict(str(value)).label


BAD = {
    "x.csv": ("id,text\n1,good\n,\n3\n4,bad,or\n5,fine\n6, \n", [4, 5], 2),
    "x.tsv": ("id\ttext\n1\tgood\n\t\n3\n4\tbad\tor\n5\tfine\n6\t \n", [4, 5], 2),
    "x.jsonl": ('{"text": "good"}\n{"text": null}\n["a"]\n{"text\n{"text": "fine"}\n{}\n', [3, 4], 2),
}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("name", BAD)
def test_every_row_is_in_the_output_and_bad_ones_are_listed(folders, tmp_path, name, kind):
    content, bad, empty = BAD[name]
    (tmp_path / name).write_text(content)
    out, listed = tmp_path / f"o.{kind}", tmp_path / "bad.jsonl"
    result = predict_file(folders(), tmp_path / name, out, text="text", bad_rows=listed)
    assert (result.rows, result.empty, result.bad) == (6, empty, 2)
    assert [row["line"] for row in lines(listed)] == bad
    assert all(row["reason"] for row in lines(listed))
    found = [row["prediction"] for _, row in open_rows(out)]
    with load(folders()) as model:
        good, fine = (model.predict(text).label for text in ("good", "fine"))
        printed = [answer for _, _, answer in predict_rows(model, tmp_path / name, text="text")]
    assert [value or None for value in found] == [good, None, None, None, fine, None]
    assert [isinstance(answer, NoAnswer) for answer in printed] == [not value for value in found]


@pytest.mark.parametrize("name", BAD)
def test_strict_stops_at_the_first_bad_row_and_resumes_when_it_is_mended(folders, tmp_path, monkeypatch, name):
    monkeypatch.setattr(module, "_STEP_ROWS", 1)
    header, _, content = BAD[name][0].partition("\n")
    path, out = tmp_path / name, tmp_path / "o.jsonl"
    good = {"x.csv": "7,film\n", "x.tsv": "7\tfilm\n", "x.jsonl": '{"text": "film"}\n'}[name]
    path.write_text(f"{header}\n{good * 300}{content}")
    for line in [300 + line for line in BAD[name][1]]:
        with pytest.raises(DataError, match=f"line {line}"):
            predict_file(folders(), path, out, text="text", strict=True)
        whole = path.read_text().splitlines()
        whole[line - 1] = good.strip()
        path.write_text("\n".join(whole) + "\n")
    result = predict_file(folders(), path, out, text="text", strict=True)
    assert result.resumed > 0
    assert (result.rows, result.bad) == (306, 0)
    monkeypatch.undo()
    predict_file(folders(), path, tmp_path / "alone.jsonl", text="text")
    assert out.read_bytes() == (tmp_path / "alone.jsonl").read_bytes()


def test_counts_of_a_resumed_run_are_those_of_the_file(folders, tmp_path, stop):
    (tmp_path / "x.csv").write_text(BAD["x.csv"][0])
    stop(True)
    with pytest.raises(KeyboardInterrupt):
        predict_file(folders(), tmp_path / "x.csv", tmp_path / "o.csv")
    stop(False)
    result = predict_file(folders(), tmp_path / "x.csv", tmp_path / "o.csv", bad_rows=tmp_path / "bad.csv")
    assert (result.rows, result.resumed, result.empty, result.bad) == (6, 6, 2, 2)
    assert read_table(tmp_path / "bad.csv").columns["line"] == ["4", "5"]


def test_a_list_of_bad_rows_replaces_only_an_older_one_and_only_by_force(folders, tmp_path, monkeypatch, stop):
    monkeypatch.chdir(tmp_path)
    source, out, listed = (tmp_path / name for name in ("x.csv", "o.csv", "bad.csv"))
    source.write_text(BAD["x.csv"][0])
    listed.write_text("mine")
    with pytest.raises(OutputError, match="exists; choose another --bad-rows, or use --force"):
        predict_file(folders(), source, out, bad_rows=listed)
    for taken, whose in (("./x.csv", "the input"), ("o.csv", "the output")):
        with pytest.raises(OutputError, match=whose):
            predict_file(folders(), source, out, bad_rows=taken, force=True)
    with pytest.raises(OutputError, match="the input"):
        predict_file(folders(), tmp_path / "x*", out, bad_rows=source, force=True)
    assert (source.read_text(), listed.read_text()) == (BAD["x.csv"][0], "mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "x.csv"]

    out.write_text("mine, too")
    stop(True)
    with pytest.raises(KeyboardInterrupt):
        predict_file(folders(), source, out, bad_rows=listed, force=True)
    assert listed.read_text() == "mine"
    stop(False)
    assert predict_file(folders(), source, out, bad_rows=listed).resumed == 6
    assert read_table(listed).columns["line"] == ["4", "5"]


def test_columns_that_the_input_has_get_a_number(folders, tmp_path):
    (tmp_path / "x.csv").write_text("text,score,score 2\ngood,5,6\n")
    result = predict_file(folders(), tmp_path / "x.csv", tmp_path / "o.csv")
    assert result.renamed == {"score": "score 3"}
    assert list(read_table(tmp_path / "o.csv").columns) == ["text", "score", "score 2", "prediction", "score 3"]
    again = predict_file(folders(), tmp_path / "o.csv", tmp_path / "p.csv", text="text")
    assert again.renamed == {"prediction": "prediction 2", "score": "score 4"}


def test_rows_without_a_file(folders, table):
    with load(folders()) as model:
        found = list(predict_rows(model, table))
        expected = model.predict(TEXTS)
    assert [text for _, text, _ in found] == TEXTS * 10
    assert found[2][2] == NoAnswer("no text")
    del found[2], expected[2]
    assert [answer.label for _, _, answer in found[:3]] == [answer.label for answer in expected]
    found.insert(2, None)
    assert found[5][0] == {"id": "5", "text": TEXTS[1]}


def test_mistakes(folders, table, tmp_path):
    with pytest.raises(NotPackedError, match="nowhere"):
        predict_file(tmp_path / "nowhere", table, tmp_path / "o.csv")
    with pytest.raises(DataError, match=r"nowhere\.csv"):
        predict_file(folders(), tmp_path / "nowhere.csv", tmp_path / "o.csv")
    with pytest.raises(DataError, match="'txet'"):
        predict_file(folders(), table, tmp_path / "o.csv", text="txet")
    with pytest.raises(OptionError, match=r"\.xls"):
        predict_file(folders(), table, tmp_path / "o.xls")
    assert [path.name for path in tmp_path.iterdir()] == ["mails.csv"]


def test_neither_torch_nor_the_command_line_is_imported():
    code = (
        "import sys, ternarybert.runtime.predict_file\n"
        "print([name for name in ('torch', 'transformers', 'datasets', 'typer', 'rich', 'safetensors')"
        " if name in sys.modules or 'ternarybert.cli' in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
