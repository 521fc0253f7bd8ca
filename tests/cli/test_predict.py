"""`ternarybert predict`: texts from anywhere, answers for people and programs, files that survive a kill."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import ternarybert
from ternarybert.cli import console
from ternarybert.cli.format import as_line
from ternarybert.data import writers
from ternarybert.runtime import predict_file
from tests.processes import fork
from tests.runtime.folders import save_student

from .shell import command

LABELS = {"id2label": {0: "joy", 1: "anger", 2: "so so"}, "label2id": {"joy": 0, "anger": 1, "so so": 2}}
TEXTS = ["the film was good", "awful, dull plot", "i liked it"]


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folders = {}

    def folder(head="ForSequenceClassification", **changes):
        key = head + repr(changes)
        if key not in folders:
            folders[key] = save_student(tmp_path_factory.mktemp("packed") / "model", head, **changes)
        return folders[key]

    return folder


@pytest.fixture
def moods(made):
    return made(**LABELS)


def answers(folder, texts):
    with ternarybert.load(folder) as model:
        return model.predict(texts)


def piped(monkeypatch, data, *, terminal=False):
    """Standard input with these bytes in it."""
    stream = io.TextIOWrapper(io.BytesIO(data.encode() if isinstance(data, str) else data))
    stream.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stdin", stream)


def test_texts_as_arguments(moods):
    code, out, err = command("predict", moods, *TEXTS)
    assert (code, err) == (0, "")
    for line, text, answer in zip(out.splitlines(), TEXTS, answers(moods, TEXTS), strict=True):
        assert line == f"{answer.label}\t{answer.score:.4f}\t{text}"


def test_all_scores(moods):
    _, out, _ = command("predict", moods, TEXTS[0], "--all")
    scores = answers(moods, TEXTS[0]).scores
    said = dict(part.rsplit(" ", 1) for part in out.split("\t")[0].split(", "))
    assert {name: float(score) for name, score in said.items()} == pytest.approx(scores, abs=1e-4)
    assert list(said) == sorted(scores, key=lambda name: -scores[name])


def test_json(moods):
    _, out, _ = command("predict", moods, *TEXTS, "--json")
    for line, text, answer in zip(out.splitlines(), TEXTS, answers(moods, TEXTS), strict=True):
        assert json.loads(line) == {"text": text, "label": answer.label, "score": answer.score}
    _, out, _ = command("predict", moods, TEXTS[0], "--json", "--all")
    assert json.loads(out)["scores"] == answers(moods, TEXTS[0]).scores


def test_pairs(moods, monkeypatch):
    pairs = [("good film", "bad film"), ("a", "b")]
    expected = [answer.label for answer in answers(moods, pairs)]
    _, out, _ = command("predict", moods, "--pair", *pairs[0], *pairs[1])
    assert [line.split("\t")[0] for line in out.splitlines()] == expected
    assert out.splitlines()[0].endswith("good film | bad film")
    piped(monkeypatch, "good film\tbad film\na\tb\n")
    _, out, _ = command("predict", moods, "--pair", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["label"] for one in found] == expected
    assert (found[0]["text"], found[0]["text_pair"]) == pairs[0]


def test_standard_input(moods, monkeypatch):
    piped(monkeypatch, "\n".join(TEXTS) + "\n\n  \nthe last line has no end: é")
    _, out, _ = command("predict", moods)
    lines = out.splitlines()
    assert [line.split("\t")[2] for line in lines] == [*TEXTS, "the last line has no end: é"]


def test_a_byte_order_mark_on_standard_input(moods, made, monkeypatch):
    piped(monkeypatch, "\ufeffgood\n\ufeffbad\n")
    _, out, _ = command("predict", moods, "--json")
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["good", "\ufeffbad"]
    folder, context = made("ForQuestionAnswering"), "the film was good"
    piped(monkeypatch, f"\ufeff{context}")
    _, out, _ = command("predict", folder, "--question", "was it", "--json")
    assert json.loads(out) == {"question": "was it", **answers(folder, ("was it", context)).as_dict()}


def test_a_slow_source_is_answered_at_once(moods):
    """A line is answered before the next one comes."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "ternarybert", "predict", moods],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    for text in TEXTS:
        process.stdin.write(f"{text}\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith(f"{text}\n")
    process.stdin.close()
    assert process.wait() == 0
    process.stdout.close()


def test_a_person_types(moods, monkeypatch):
    typed = iter(["the film was good", "  ", "awful"])

    def type_a_line(prompt):
        assert prompt == "> "
        for line in typed:
            return line
        raise EOFError

    piped(monkeypatch, "", terminal=True)
    monkeypatch.setattr("builtins.input", type_a_line)
    code, out, err = command("predict", moods)
    assert code == 0
    assert [line.split("\t")[2] for line in out.splitlines()] == ["the film was good", "awful"]
    assert "Ctrl-D" in err


def test_numbers(made):
    folder = made(num_labels=1)
    _, out, _ = command("predict", folder, "good")
    assert out == f"{answers(folder, 'good').value:.4f}\tgood\n"


def test_several_labels(made):
    folder = made(problem_type="multi_label_classification", **LABELS)
    answer = answers(folder, "good")
    _, out, _ = command("predict", folder, "good")
    assert {part.rsplit(" ", 1)[0] for part in out.split("\t")[0].split(", ")} == (set(answer.labels) or {"-"})
    _, out, _ = command("predict", folder, "good", "--all")
    assert all(name in out for name in answer.scores)


def test_words(made):
    folder = made("ForTokenClassification", **LABELS)
    entities = answers(folder, "the film").entities
    _, out, _ = command("predict", folder, "the film")
    assert out.startswith(f"{entities[0].text} ({entities[0].label} {entities[0].score:.4f})")
    _, out, _ = command("predict", folder, "the film", "--json")
    assert json.loads(out)["entities"] == [entity.as_dict() for entity in entities]


def test_questions(made, monkeypatch):
    folder, context = made("ForQuestionAnswering"), "The movie was great, and the plot was dull."
    expected = answers(folder, ("was it fun", context))
    line = f"{expected.text}\t{expected.score:.4f}\twas it fun"
    _, out, _ = command("predict", folder, "--question", "was it fun", "--context", context)
    assert out == f"{line}\n"
    piped(monkeypatch, context)
    _, out, _ = command("predict", folder, "--question", "was it fun")
    assert out == f"{line}\n"
    _, out, _ = command("predict", folder, "--context", context, "was it fun", "was it good")
    assert out.startswith(line)
    assert len(out.splitlines()) == 2
    piped(monkeypatch, "was it fun\n")
    _, out, _ = command("predict", folder, "--context", context, "--json")
    assert json.loads(out) == {"question": "was it fun", **expected.as_dict()}
    _, out, _ = command("predict", folder, "--question", "q", "--context", context, "--null-threshold", "-1000")
    assert out.startswith("(no answer)")
    _, out, _ = command("predict", folder, "--question", "q", "--context", "")
    assert out.startswith("(no answer)")
    _, out, _ = command("predict", folder, "--question", "q", "--context", "", "--json")
    assert json.loads(out) == {"question": "q", "answer": None, "score": 1.0, "start": None, "end": None}


def test_a_context_from_standard_input_is_utf8(made, monkeypatch):
    """Whatever the locale would make of it."""
    folder = made("ForQuestionAnswering")
    stream = io.TextIOWrapper(io.BytesIO("le café était bon\n".encode()), encoding="latin-1")
    monkeypatch.setattr(sys, "stdin", stream)
    _, out, _ = command("predict", folder, "--question", "q", "--json")
    assert json.loads(out) == {"question": "q", **answers(folder, ("q", "le café était bon\n")).as_dict()}
    piped(monkeypatch, "café".encode("latin-1"))
    code, _, err = command("predict", folder, "--question", "q")
    assert code == 2
    assert "standard input is not UTF-8 text" in err


def test_questions_of_all_kinds(made, tmp_path, monkeypatch):
    """Empty, in another script, and about 10,000 words: all of it is read, so nothing is noted."""
    folder, word = made("ForQuestionAnswering"), "превосходно"
    rows = [("", f"the film was {word}"), ("хорош ли фильм?", f"{word} 好 " * 50), ("was it", f"{word} fun " * 5000)]
    source = write_csv(tmp_path / "x.csv", ["question", "context"], rows)
    code, out, err = command("predict", folder, "--input", source, "--json")
    assert (code, err) == (0, "")
    for (question, context), line in zip(rows, out.splitlines(), strict=True):
        expected = answers(folder, (question, context))
        assert expected.text == context[expected.start : expected.end] != ""
        piped(monkeypatch, context)
        _, alone, err = command("predict", folder, "--question", question, "--json")
        assert json.loads(line) == json.loads(alone) == {"question": question, **expected.as_dict()}
        assert err == ""


def test_long_texts_are_noted(moods):
    code, out, err = command("predict", moods, "good " * 100)
    assert code == 0
    assert err.splitlines() == ["ternarybert: note: 1 of 1 texts are longer than 64 tokens and were truncated"]
    _, shorter, _ = command("predict", moods, "good " * 100, "--max-length", "10")
    assert shorter != out


def write_csv(path, names, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def read(path):
    """The rows of an output, all values as text."""
    kind = path.suffix
    if kind == ".parquet":
        rows = parquet.read_table(path).to_pylist()
    elif kind == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    else:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="," if kind == ".csv" else "\t"))
    return [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]


@pytest.fixture
def table(tmp_path):
    rows = [(i, text, i % 2) for i, text in enumerate([*TEXTS, 'a "quoted", text\nin two lines\t', ""] * 20)]
    return write_csv(tmp_path / "mails.csv", ["id", "text", "label"], rows)


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_files(moods, table, tmp_path, kind):
    code, out, err = command("predict", moods, "--input", table, "--output", tmp_path / f"out.{kind}")
    assert (code, out) == (0, "")
    assert "100 rows" in err
    assert "20 had no text" in err
    rows = read(tmp_path / f"out.{kind}")
    with table.open(newline="") as file:
        given = list(csv.DictReader(file))
    expected = answers(moods, [row["text"] for row in given])
    for row, before, answer in zip(rows, given, expected, strict=True):
        assert {name: row[name] for name in before} == before
        assert row["prediction"] == (answer.label if before["text"] else "")
        assert row["score"] == (str(answer.score) if before["text"] else "")
    assert list(rows[0]) == ["id", "text", "label", "prediction", "score"]
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name or "joined" in path.name] == []


def test_any_kind_of_input(moods, table, tmp_path):
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["id"] = int(row["id"])
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "in.parquet")
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command("predict", moods, "--input", table, "--output", tmp_path / "csv.jsonl")
    expected = read(tmp_path / "csv.jsonl")
    for name in ("in.parquet", "in.jsonl"):
        for kind in ("parquet", "jsonl", "csv"):
            code, _, err = command("predict", moods, "-i", tmp_path / name, "-o", tmp_path / f"{name}.{kind}")
            assert code == 0, err
            assert read(tmp_path / f"{name}.{kind}") == expected
    assert parquet.read_schema(tmp_path / "in.parquet.parquet").field("id").type == pyarrow.int64()


def test_scores_of_all_labels_as_columns(moods, table, tmp_path):
    command("predict", moods, "--input", table, "--output", tmp_path / "o.csv", "--all")
    rows = read(tmp_path / "o.csv")
    assert list(rows[0])[3:] == ["prediction", "score", "score joy", "score anger", "score so so"]
    assert sum(float(rows[0][f"score {name}"]) for name in ("joy", "anger", "so so")) == pytest.approx(1)


def test_pairs_in_two_columns(moods, tmp_path):
    source = write_csv(tmp_path / "x.csv", ["premise", "hypothesis"], [("good film", "bad film"), ("a", "")])
    command("predict", moods, "--input", source, "--output", tmp_path / "o.jsonl")
    expected = answers(moods, [("good film", "bad film"), ("a", "")])
    assert [row["prediction"] for row in read(tmp_path / "o.jsonl")] == [answer.label for answer in expected]
    command("predict", moods, "--input", source, "--text", "premise", "--output", tmp_path / "p.jsonl")
    expected = answers(moods, ["good film", "a"])
    assert [row["prediction"] for row in read(tmp_path / "p.jsonl")] == [answer.label for answer in expected]


def test_questions_in_a_file(made, tmp_path):
    folder, context = made("ForQuestionAnswering"), "the film was good and the plot was dull"
    source = write_csv(tmp_path / "x.csv", ["question", "context"], [("was it good", context), ("was it fun", "")])
    command("predict", folder, "--input", source, "--output", tmp_path / "o.jsonl")
    first, second = read(tmp_path / "o.jsonl")
    answer = answers(folder, ("was it good", context))
    assert (first["prediction"], first["start"], first["end"]) == (answer.text, str(answer.start), str(answer.end))
    assert second["prediction"] == ""
    named = write_csv(tmp_path / "y.csv", ["q", "c"], [("was it good", context)])
    code, _, err = command("predict", folder, "--input", named)
    assert code == 2
    assert "has no column 'question'" in err
    code, out, _ = command("predict", folder, "--input", named, "--text", "q", "--text-pair", "c")
    assert out.startswith(answer.text)


@pytest.mark.parametrize("head", ["ForQuestionAnswering", "ForSequenceClassification"])
def test_parquet_columns_keep_their_kind_where_answers_come_late(made, tmp_path, monkeypatch, head):
    monkeypatch.setattr(writers, "_BATCH", 2)
    regression = {"num_labels": 1, "problem_type": "regression"} if head == "ForSequenceClassification" else {}
    rows = [{"question": "was it", "context": ""}] * 2 + [{"question": "was it", "context": "a good film"}]
    if regression:
        rows = [{"text": row["context"]} for row in rows]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, _, err = command(
        "predict", made(head, **regression), "-i", tmp_path / "x.jsonl", "-o", tmp_path / "o.parquet"
    )
    assert code == 0, err
    schema = parquet.read_schema(tmp_path / "o.parquet")
    kinds = {name: str(schema.field(name).type) for name in schema.names if name not in rows[0]}
    if regression:
        assert kinds == {"prediction": "double"}
    else:
        assert kinds == {"prediction": "string", "score": "double", "start": "int64", "end": "int64"}
    assert parquet.read_table(tmp_path / "o.parquet")["prediction"][2].as_py()


def test_words_in_a_file(made, tmp_path):
    folder = made("ForTokenClassification", **LABELS)
    (tmp_path / "x.txt").write_text("the film\n\ngood fun\n")
    command("predict", folder, "--input", tmp_path / "x.txt", "--output", tmp_path / "o.csv")
    rows = read(tmp_path / "o.csv")
    assert json.loads(rows[0]["prediction"]) == [one.as_dict() for one in answers(folder, "the film").entities]
    assert [row["text"] for row in rows] == ["the film", "", "good fun"]


def test_a_file_to_the_terminal(moods, table):
    code, out, _ = command("predict", moods, "--input", table, "--json")
    assert code == 0
    assert len(out.splitlines()) == 100
    assert json.loads(out.splitlines()[0])["text"] == TEXTS[0]


def test_the_report_as_json(moods, table, tmp_path):
    _, out, _ = command("predict", moods, "--input", table, "--output", tmp_path / "o.csv", "--json")
    report = json.loads(out)
    assert (report["rows"], report["resumed"], report["without_text"]) == (100, 0, 20)
    assert report["rows_per_second"] > 0


def test_a_run_that_was_stopped_goes_on(moods, table, tmp_path, monkeypatch):
    """Whenever it is stopped, the file is the same in the end, and no row is computed twice."""
    command("predict", moods, "--input", table, "--output", tmp_path / "whole.csv")
    monkeypatch.setattr(predict_file, "_STEP_ROWS", 7)
    seen, real = [], writers.AnswerWriter.append

    def append(self, file, step, *more):
        real(self, file, step, *more)
        seen.append(len(step))
        if len(seen) in (2, 5, 6):
            raise KeyboardInterrupt

    monkeypatch.setattr(writers.AnswerWriter, "append", append)
    codes = []
    while not (tmp_path / "o.csv").exists():
        code, _, err = command("predict", moods, "--input", table, "--output", tmp_path / "o.csv")
        codes.append(code)
        assert code == 0 or "resume with the same command" in err
    assert codes == [130, 130, 130, 0]
    assert sum(seen) == 100
    assert "of them earlier" in err
    assert (tmp_path / "o.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_run_that_was_killed_goes_on(moods, tmp_path):
    source = write_csv(tmp_path / "x.csv", ["id", "text"], [(i, f"film {i} was good") for i in range(16_000)])
    line = ["-m", "ternarybert", "predict", moods, "-i", source, "-o", tmp_path / "o.csv"]
    note, kills = tmp_path / "o.csv.part.json", 0
    for rows in (1, 4_000):  # killed soon after the first rows, and once more
        process = fork(*line)
        while process.poll() is None and not (note.exists() and json.loads(note.read_text())["done"] >= rows):
            time.sleep(0.01)
        kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert kills == 2
    assert not (tmp_path / "o.csv").exists()
    process = fork(*line)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "of them earlier" in err
    assert [row["id"] for row in read(tmp_path / "o.csv")] == [str(i) for i in range(16_000)]
    command("predict", moods, "--input", source, "--output", tmp_path / "whole.csv")
    assert (tmp_path / "o.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.linux_only("the memory of the process is read from /proc")
def test_memory_does_not_grow_with_the_file(moods, tmp_path):
    code = (
        "from ternarybert.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        # Of this process alone; getrusage would begin with the memory of the process that started it.
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )

    def peak(rows):
        source = write_csv(tmp_path / f"{rows}.csv", ["text"], [("the film was good and " * 5,)] * rows)
        line = [sys.executable, "-c", code, "predict", moods, "-i", source, "-o", source.with_suffix(".jsonl")]
        # One pool of memory for all threads: with one for each, the peak depends on which threads met by chance.
        environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
        return int(subprocess.run(line, capture_output=True, text=True, check=True, env=environment).stdout)

    few, many = peak(16_000), peak(48_000)  # by then the chunks that are read at once no longer grow
    assert many < few + 5_000  # kilobytes; as Python objects the other rows would take three times that


def test_force_drops_an_unfinished_output(moods, table, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writers.AnswerWriter, "finish", stop)
        assert command("predict", moods, "--input", table, "--output", tmp_path / "o.csv")[0] == 130
    assert (tmp_path / "o.csv.part").stat().st_size
    code, _, err = command("predict", moods, "--input", table, "--output", tmp_path / "o.csv", "--force")
    assert code == 0 and "earlier" not in err
    with monkeypatch.context() as patch:  # a forced run that is stopped is resumed without it
        patch.setattr(writers.AnswerWriter, "finish", stop)
        code, _, err = command("predict", moods, "--input", table, "--output", tmp_path / "o.csv", "--force")
    assert code == 130 and "without --force" in err
    code, _, err = command("predict", moods, "--input", table, "--output", tmp_path / "o.csv")
    assert code == 0 and "100 of them earlier" in err


def test_another_model_or_table_does_not_go_on(moods, made, table, tmp_path):
    out = tmp_path / "o.csv"
    (tmp_path / "o.csv.part").write_text("something")
    code, _, err = command("predict", moods, "--input", table, "--output", out)
    assert code == 2
    assert "o.csv.part" in err and "--force" in err
    code, _, _ = command("predict", moods, "--input", table, "--output", out, "--force")
    assert code == 0
    code, _, err = command("predict", moods, "--input", table, "--output", out)
    assert code == 2
    assert "exists" in err
    assert np.all([row["prediction"] for row in read(out)] != "")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere", "a"], "'nowhere'"),
        (["model", "--text", "a", "b"], "--text"),
        (["model", "--pair", "a"], "--pair"),
        (["model", "--output", "x.csv", "a"], "--output needs --input"),
        (["model", "--input", "mails.csv", "a"], "--input mails.csv"),
        (["model", "--input", "nowhere.csv"], "nowhere.csv"),
        (["model", "--input", "mails.csv", "--text", "txet"], "'text'"),
        (["model", "--input", "mails.csv", "--text-pair", "txt2"], "'txt2'"),
        (["model", "--input", "mails.csv", "--output", "x.xls"], "'.xls'"),
        (["model", "--kernel", "abacus", "a"], "abacus"),
        (["model", "--engine", "natve", "a"], "'native'"),
        (["model", "--max-length", "1000", "a"], "5 to 64"),
        (["model", "--null-threshold", "0", "a"], "--null-threshold"),
        (["model", "--question", "a", "--pair"], "--question"),
        (["model", "--force", "a"], "--force has no effect without --output"),
        (["model", "--engine", "oracle", "--kernel", "portable", "a"], "--kernel has no effect with --engine oracle"),
        (["model", "--engine", "oracle", "--threads", "2", "a"], "--threads has no effect with --engine oracle"),
    ],
)
def test_mistakes_are_one_line(moods, table, tmp_path, monkeypatch, arguments, reason):
    (tmp_path / "model").symlink_to(moods)
    monkeypatch.chdir(tmp_path)
    code, out, err = command("predict", *arguments)
    assert (code, out) == (2, "")
    assert reason in err
    assert len(err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mails.csv", "model"]


def test_all_scores_where_there_are_no_others(made, moods, table, tmp_path):
    out = tmp_path / "o.csv"
    for head, changes, arguments in (
        ("ForQuestionAnswering", {}, ["--question", "a", "--context", "b"]),
        ("ForSequenceClassification", {"num_labels": 1}, ["a"]),
        ("ForTokenClassification", {}, ["a"]),
        ("ForTokenClassification", {}, ["--input", table, "--output", out, "--json"]),
    ):
        code, said, err = command("predict", made(head, **changes), *arguments, "--all")
        assert (code, said) == (2, "") and "--all has no effect" in err
    code, said, _ = command("predict", made("ForTokenClassification"), "a", "--all", "--json")
    assert code == 0 and json.loads(said)["words"]
    assert not out.exists()


def test_an_encoder_has_no_answers_but_vectors(made):
    code, _, err = command("predict", made("Model"), "a")
    assert code == 2 and "`ternarybert encode`" in err


def test_a_folder_that_is_not_packed(tmp_path):
    (tmp_path / "teacher").mkdir()
    (tmp_path / "teacher" / "config.json").write_text('{"model_type": "bert"}')
    code, _, err = command("predict", tmp_path / "teacher", "a")
    assert code == 2
    assert "teacher: not packed: config.json" in err and "`ternarybert ternarize` makes" in err


def test_columns_that_are_taken(moods, tmp_path):
    source = write_csv(tmp_path / "x.csv", ["text", "score"], [("a", 1)])
    code, _, err = command("predict", moods, "--input", source, "--output", tmp_path / "o.csv")
    assert code == 0
    assert "'score 2'" in err
    row = read(tmp_path / "o.csv")[0]
    assert (row["score"], row["score 2"]) == ("1", str(answers(moods, "a").score))


@pytest.mark.parametrize("value", [0, 0.0, False])
def test_numbers_are_texts_too(moods, tmp_path, value):
    """Whatever the mode: zero is not nothing."""
    (tmp_path / "x.jsonl").write_text(json.dumps({"text": value}) + "\n" + '{"text": "good"}\n')
    code, _, err = command("predict", moods, "-i", tmp_path / "x.jsonl", "--text", "text", "-o", tmp_path / "o.jsonl")
    assert code == 0 and "had no text" not in err
    assert read(tmp_path / "o.jsonl")[0]["prediction"] == answers(moods, str(value)).label
    _, out, _ = command("predict", moods, "-i", tmp_path / "x.jsonl", "--text", "text")
    assert out.splitlines()[0].startswith(answers(moods, str(value)).label)


def test_rows_that_are_no_texts(moods, tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "good"}\n{"text": 5}\n{"text": null}\n{}\n{"text": ["a"]}\n')
    arguments = ["predict", moods, "-i", tmp_path / "x.jsonl", "--text", "text"]
    code, _, err = command(*arguments, "-o", tmp_path / "o.jsonl", "--strict")
    assert code == 2
    assert "x.jsonl, line 5: 'text' is ['a'] (list), not a text" in err
    assert command(*arguments, "--strict")[0] == 2
    code, out, err = command(*arguments, "-o", tmp_path / "o.jsonl", "--bad-rows", tmp_path / "bad.csv", "--json")
    assert code == 0
    summary = json.loads(out)
    assert (summary["rows"], summary["without_text"], summary["bad"]) == (5, 2, 1)
    assert read(tmp_path / "bad.csv") == [{"line": "5", "reason": "'text' is ['a'] (list), not a text"}]
    assert [bool(row["prediction"]) for row in read(tmp_path / "o.jsonl")] == [True, True, False, False, False]
    code, out, _ = command(*arguments, "--bad-rows", tmp_path / "bad2.csv")
    assert (code, [line.split("\t")[0] for line in out.splitlines()][2:]) == (0, ["-", "-", "-"])
    assert read(tmp_path / "bad2.csv") == read(tmp_path / "bad.csv")
    before = (tmp_path / "x.jsonl").read_bytes()
    for taken, options in (("bad.csv", ()), ("x.jsonl", ["--force"])):
        code, out, err = command(*arguments, "--bad-rows", tmp_path / taken, *options)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert taken in err and "choose another --bad-rows" in err
    assert (tmp_path / "x.jsonl").read_bytes() == before
    assert command(*arguments, "--bad-rows", tmp_path / "bad.csv", "--force")[0] == 0
    _, out, _ = command(*arguments, "--json")
    assert [json.loads(line).get("error", "") != "" for line in out.splitlines()] == [False, False, True, True, True]


def test_a_ragged_row_does_not_end_a_run(moods, tmp_path):
    (tmp_path / "x.csv").write_text("id,text\n1,good\n,\n3\n4,bad,or\n5,fine\n")
    code, _, err = command("predict", moods, "-i", tmp_path / "x.csv", "-o", tmp_path / "o.csv")
    assert code == 0
    assert "5 rows" in err and "1 had no text" in err and "2 could not be read" in err and "--bad-rows" in err
    assert [row["id"] for row in read(tmp_path / "o.csv")] == ["1", "", "3", "4", "5"]


def test_halves_of_characters_do_not_end_a_run(moods, tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "good \\ud83d", "more": "\\udc00"}\n{"text": "bad"}\n')
    for kind in ("csv", "jsonl", "parquet"):
        code, _, err = command(
            "predict", moods, "-i", tmp_path / "x.jsonl", "--text", "text", "-o", tmp_path / f"o.{kind}"
        )
        assert code == 0, err
        assert len(read(tmp_path / f"o.{kind}")) == 2


def test_a_json_list(moods, tmp_path):
    (tmp_path / "x.json").write_text('[{"text": "good", "n": 1},\n {"text": "bad", "n": 2}]')
    code, _, err = command("predict", moods, "-i", tmp_path / "x.json", "-o", tmp_path / "o.jsonl")
    assert code == 0, err
    assert [(row["text"], row["n"]) for row in read(tmp_path / "o.jsonl")] == [("good", "1"), ("bad", "2")]


def test_columns_that_come_late(moods, tmp_path):
    lines = ['{"text": "good"}\n'] * 300 + ['{"text": "bad", "more": 1}\n']
    (tmp_path / "x.jsonl").write_text("".join(lines))
    code, _, err = command("predict", moods, "--input", tmp_path / "x.jsonl", "--output", tmp_path / "o.csv")
    assert code == 2
    assert "'more' is not in the first rows" in err
    code, _, _ = command("predict", moods, "--input", tmp_path / "x.jsonl", "--output", tmp_path / "o.jsonl")
    assert code == 0
    assert read(tmp_path / "o.jsonl")[-1]["more"] == "1"


def test_lines_that_are_not_text(moods, monkeypatch):
    piped(monkeypatch, b"good\n\xff\xfe\n")
    code, _, err = command("predict", moods)
    assert code == 2
    assert "line 2 of standard input is not UTF-8" in err


def test_nothing_heavy_is_imported(moods, table, tmp_path):
    code = (
        "import sys; from ternarybert.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'transformers', 'datasets', 'pandas', 'sklearn', 'scipy', 'yaml'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    for arguments in (["good"], ["-i", table, "-o", tmp_path / "o.csv"]):
        line = [sys.executable, "-c", code, "predict", moods, *arguments]
        environment = os.environ | {"TERNARYBERT_THREADS": "1"}
        done = subprocess.run(line, capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.splitlines()[-1] == "[]"


def shell(line, **variables):
    """What a shell does with a line."""
    environment = os.environ | {"TERNARYBERT_THREADS": "1", **{name: str(value) for name, value in variables.items()}}
    return subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, env=environment)


RUN = f"{sys.executable} -m ternarybert predict"


def test_a_reader_that_stops_early_is_no_error(moods, tmp_path):
    source = write_csv(tmp_path / "x.csv", ["text"], [("the film was good",)] * 20_000)
    done = shell(f'{RUN} "$MODEL" --input "$FILE" | head -n 1', MODEL=moods, FILE=source)
    assert len(done.stdout.splitlines()) == 1
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.linux_only("/dev/full")
def test_answers_that_cannot_be_written(moods, tmp_path):
    source = write_csv(tmp_path / "x.csv", ["text"], [("the film was good",)] * 10)
    for arguments in (f'--input "{source}"', "good", "good --json"):
        done = shell(f'{RUN} "$MODEL" {arguments} > /dev/full', MODEL=moods)
        assert done.returncode == 2
        assert "disk is full" in done.stderr and "resume" not in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.linux_only("/dev/full")
@pytest.mark.parametrize("arguments", ["--help", "--version", "predict --help", "doctor --no-selftest", "bundle M OUT"])
def test_no_command_ends_in_a_traceback_when_it_cannot_print(moods, tmp_path, arguments):
    arguments = arguments.replace("M OUT", f'"{moods}" "{tmp_path / "m.tbert"}"')
    done = shell(f"{sys.executable} -m ternarybert {arguments} > /dev/full")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith("ternarybert: ") and "No space left" in done.stderr


def test_a_log_shows_how_far_a_long_run_is(moods, table, tmp_path, monkeypatch):
    monkeypatch.setattr(console, "_LOG_INTERVAL", 0.0)
    monkeypatch.setattr(predict_file, "_STEP_ROWS", 10)
    code, _, err = command("predict", moods, "--input", table, "--output", tmp_path / "o.csv")
    assert code == 0
    assert sum("rows/s" in line for line in err.splitlines()) >= 5


def test_blank_lines_of_standard_input_are_counted(moods, monkeypatch):
    piped(monkeypatch, "good\n\n \nbad\n")
    _, out, err = command("predict", moods)
    assert (len(out.splitlines()), err) == (2, "ternarybert: note: 2 blank lines were left out\n")


def test_entities_are_colored_on_a_terminal_only(made):
    folder = made("ForTokenClassification", **LABELS)
    assert "\x1b[" in as_line("the film", answers(folder, "the film"))
    _, out, _ = command("predict", folder, "the film")
    assert "\x1b[" not in out
    assert out.endswith("\tthe film\n")
