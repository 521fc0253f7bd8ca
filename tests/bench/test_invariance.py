"""The same texts in many ways: ours must give the same bits, and the measure must see an engine that does not."""

import json

import numpy as np
import pytest
from tests import tiny
from tests.runtime.folders import save_student
from typer.testing import CliRunner

from ternarybert.bench import invariance
from ternarybert.bench.engines import OURS
from ternarybert.bench.inputs import pad_tokens, read_sequences, write_sequences
from ternarybert.bench.invariance import Deviation, _deviation, invariance_headings, invariance_rows, measure_invariance
from ternarybert.bench.random_model import ModelShape, write_random
from ternarybert.cli import make_app
from ternarybert.errors import OptionError
from ternarybert.native import kernels

SMALL = ModelShape(layers=2, hidden=32, heads=4, intermediate=64)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    place = tmp_path_factory.mktemp("invariance")
    write_random(place / "packed", place / "plain", SMALL)
    (place / "run").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(invariance, "_TEXTS", 64)
        ours = measure_invariance(place / "packed", place / "run", engines=[OURS], plain=place / "plain")
        # One process of torch is enough, and each takes seconds to start.
        first = invariance._settings
        patch.setattr(invariance, "_settings", lambda *args: [next(first(*args))])
        (place / "again").mkdir()
        torch = measure_invariance(place / "packed", place / "again", engines=["torch-int8"], plain=place / "plain")
    return {**ours, "engines": ours["engines"] + torch["engines"]}


def test_our_answers_have_the_same_bits_however_they_are_computed(report):
    ours = report["engines"][0]
    assert ours["failed"] is None
    wanted = {f"batches of {size}" for size in (2, 4, 8, 16, 32, 64)} | {"reversed", "shuffled", "padded", "2 threads"}
    assert set(ours["deviations"]) == wanted | {f"kernel {name}" for name in kernels()}
    assert all(deviation == {"largest": 0.0, "texts": 0, "labels": 0} for deviation in ours["deviations"].values())
    assert ours["total"] == {"largest": 0.0, "texts": 0, "labels": 0}


def test_one_range_for_the_whole_batch_is_seen(report):
    """torch's dynamic int8 takes one range of activations for the batch: the other texts change an answer."""
    torch = report["engines"][1]
    assert torch["failed"] is None
    assert torch["deviations"]["batches of 64"]["texts"] > report["texts"] / 2
    assert torch["total"]["texts"] >= max(one["texts"] for one in torch["deviations"].values())


def test_table_has_a_row_per_engine(report):
    rows = invariance_rows(report)
    assert [row[0] for row in rows] == [OURS, "torch-int8"]
    assert {len(row) for row in rows} == {len(invariance_headings(report))}
    assert set(rows[0][1:]) <= {"0", "-"}
    assert rows[1][-1] != "0"


def test_deviation_counts_texts_once():
    alone = np.array([[0, 1], [1, 0], [0, 2]], np.float32)
    first, second = alone.copy(), alone.copy()
    first[0] = [3, 1]  # another label
    second[0], second[1] = [2, 1], [1, 0.5]  # the same text again, and one whose label stays
    assert _deviation(alone, [first]) == Deviation(3.0, 1, 1)
    assert _deviation(alone, [first, second]) == Deviation(3.0, 2, 1)
    assert _deviation(alone, [alone]) == Deviation(0.0, 0, 0)


def test_sequences_round_trip_and_padding(tmp_path):
    sequences = [[5, 6, 7], [8], [9, 9]]
    write_sequences(tmp_path / "texts.npz", sequences)
    assert read_sequences(tmp_path / "texts.npz") == sequences
    batch = pad_tokens(sequences, 6)
    assert batch.ids.shape == (3, 6)
    assert batch.sequences() == sequences


def test_from_the_command_line_on_real_texts(tmp_path):
    folder = save_student(tmp_path / "model", "ForSequenceClassification")
    (tmp_path / "texts.txt").write_text("\n".join(tiny.WORDS))
    command = ["bench", str(folder), "--invariance", "--texts", str(tmp_path / "texts.txt"), "--engine", OURS, "--json"]
    done = CliRunner().invoke(make_app(), command)
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert made["texts"] == len(tiny.WORDS)
    assert made["real_texts"]
    assert made["engines"][0]["total"] == {"largest": 0.0, "texts": 0, "labels": 0}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--texts", "t.txt"], "--invariance"),
        (["--invariance", "--texts", "t.txt"], "FOLDER"),
        (["--invariance", "--threads", "3"], "--threads"),
        (["--invariance", "--engine", "ctranslate2-int8"], "ctranslate2-int8"),
    ],
)
def test_options_that_do_not_go_together(tmp_path, monkeypatch, options, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text("a\nb\n")
    done = CliRunner().invoke(make_app(), ["bench", "--shape", "mini", *options])
    assert isinstance(done.exception, OptionError)
    assert named in str(done.exception)


def test_one_text_is_not_enough(tmp_path):
    folder = save_student(tmp_path / "model", "ForSequenceClassification")
    (tmp_path / "run").mkdir()
    with pytest.raises(OptionError, match="one text"):
        measure_invariance(folder, tmp_path / "run", engines=[OURS], texts=["a film"])


def test_a_missing_engine_is_in_the_report(tmp_path, monkeypatch):
    folder = save_student(tmp_path / "model", "ForSequenceClassification")
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(invariance, "missing_modules", lambda engine: "not installed: it")
    made = measure_invariance(folder, tmp_path / "run", engines=[OURS], texts=["a film", "it was fun"])
    assert made["engines"][0]["failed"] == "not installed: it"
    assert invariance_rows(made) == []
