"""The commands on an embedder: ternarize, evaluate on texts, and what they refuse."""

import json

import pytest

from ternarybert.runtime import Embedder, load
from tests import tiny
from tests.cli.shell import command
from tests.embedders import float_embedder
from tests.training.conftest import rows

QUICK = ("--max-steps", 3, "--evaluations", 1, "--batch-size", 8, "--device", "cpu")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    float_embedder(folder / "teacher")
    (folder / "texts.txt").write_text("\n".join(rows(40)["text"]))
    return folder


def test_texts_are_enough(world, tmp_path):
    small = tmp_path / "small"
    code, out, err = command("ternarize", world / "teacher", "--train", world / "texts.txt", "-o", small, *QUICK)
    assert code == 0, err
    assert "cosine" in out and "train 36 texts" in err
    following = next(line for line in out.splitlines() if line.startswith("Next: ternarybert ")).split()[2:]
    assert following[0] == "encode"
    code, _, err = command(*following)
    assert code == 0
    notes = [line for line in err.splitlines() if "truncated" in line]
    assert notes and all(line.startswith("ternarybert: note: ") for line in notes)
    with load(small) as model:
        assert isinstance(model, Embedder)
    for engine in ("native", "torch"):
        files = ("--eval", world / "texts.txt", "--engine", engine, "--json")
        code, out, err = command("evaluate", small, *files)
        assert code == 2 and "--teacher" in err
        code, out, err = command("evaluate", small, *files, "--teacher", small)
        assert code == 0, err
        assert json.loads(out)["scores"]["cosine"] == pytest.approx(100)


def test_a_pooling_for_a_plain_encoder(world, tmp_path):
    plain = tmp_path / "plain"
    float_embedder(plain)
    for name in ("modules.json", "sentence_bert_config.json"):
        (plain / name).unlink()
    arguments = ("ternarize", plain, "--train", world / "texts.txt", "-o", tmp_path / "small", *QUICK)
    code, _, err = command(*arguments)
    assert code == 2 and "--pooling" in err
    code, _, err = command(*arguments, "--pooling", "medium")
    assert code == 2 and "'medium'" in err
    code, _, err = command(*arguments, "--pooling", "max")
    assert code == 0, err
    assert json.loads((tmp_path / "small" / "1_Pooling" / "config.json").read_text())["pooling_mode_max_tokens"]


def test_what_is_refused(world, tmp_path):
    tiny.save(tmp_path / "classifier")
    files = ("--train", world / "texts.txt", "-o", tmp_path / "small")
    code, _, err = command("ternarize", tmp_path / "classifier", *files, "--pooling", "mean")
    assert code == 2 and "--pooling mean" in err
    code, _, err = command("ternarize", world / "teacher", "--task", "mrpc", "-o", tmp_path / "small")
    assert code == 2 and "--task" in err
    (tmp_path / "rows.csv").write_text("text,label\ngood,a\nbad,b\n")
    labeled = ("--train", tmp_path / "rows.csv", "--text", "text", "--label", "label", "-o", tmp_path / "small")
    code, _, err = command("ternarize", world / "teacher", *labeled)
    assert code == 2 and "--label has no effect with an embedder" in err
    tiny.save(tmp_path / "tagger", make=tiny.tagger)
    code, _, err = command("ternarize", tmp_path / "tagger", *labeled)
    assert code == 2 and "--label has no effect with a model that tags words" in err
