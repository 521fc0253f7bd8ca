"""Engines side by side, on a small model."""

import json
import re
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ternarybert import packed
from ternarybert.bench import engines, random_model, run
from ternarybert.bench.engines import OURS, BenchEngine
from ternarybert.bench.inputs import make_tokens
from ternarybert.bench.random_model import VOCABULARY, ModelShape, write_random
from ternarybert.bench.run import BenchPlan, Timing, bench, ratios
from ternarybert.cli import make_app
from ternarybert.errors import KernelError, OptionError
from ternarybert.families import HeadKind
from ternarybert.native import kernels, peak_gmacs
from ternarybert.packed.hf_folder import write_plain
from ternarybert.runtime.engine import Engine
from ternarybert.runtime.load import network_of
from ternarybert.runtime.network import Batch, Output

SMALL = ModelShape(layers=2, hidden=32, heads=4, intermediate=64)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    write_random(place / "packed", place / "plain", SMALL)
    return place / "packed", place / "plain"


def test_random_models_are_what_their_shape_says(folders):
    model = packed.read(folders[0])
    assert model.bits == "2-2-8"
    assert model.tensors["bert.encoder.layer.1.intermediate.dense.weight"].shape == (64, 32)


@pytest.mark.filterwarnings("ignore")  # of the exporter, about itself
def test_a_random_model_answers_questions_in_every_engine(tmp_path):
    """The packed model unpacked is the same model: torch and ONNX Runtime come close to our logits."""
    write_random(tmp_path / "packed", tmp_path / "float", SMALL, HeadKind.QUESTION_ANSWERING)
    content = packed.read(tmp_path / "packed")
    assert "qa_outputs.weight" in content.tensors
    assert not any("pooler" in name for name in content.tensors)
    write_plain(tmp_path / engines.PLAIN, content, tokenizer=tmp_path / "float")
    tokens = make_tokens([9, 5, 12], VOCABULARY)
    with torch.no_grad():
        model = engines._torch_model(tmp_path, 1)
        made = model(**{name: torch.from_numpy(array) for name, array in tokens.feed().items()})
    engine = Engine(network_of(content), num_threads=1)
    rows = engine.run(Batch.of(tokens.sequences()), Output.TOKEN_LOGITS)
    real = tokens.mask.astype(bool)
    wanted = [made.start_logits.numpy()[real], made.end_logits.numpy()[real]]
    np.testing.assert_allclose(rows.T, wanted, rtol=0, atol=0.1 * np.std(wanted))
    if all(map(find_spec, engines.ENGINES["onnxruntime-int8"].modules)):
        theirs = engines.onnxruntime_int8(tmp_path, 1)(tokens.feed())
        np.testing.assert_allclose([part[real] for part in theirs], wanted, rtol=0, atol=0.1 * np.std(wanted))


def test_ours_beside_torch(folders, tmp_path):
    messages = []
    plan = BenchPlan([OURS, "torch-fp32"], ["1x16", "2x8"], rounds=2, seconds=0.01)
    timings = bench(folders[0], tmp_path, plan, plain=folders[1], on_progress=messages.append)
    assert [timing.name for timing in timings] == [OURS, "torch-fp32"]
    for timing in timings:
        assert timing.failed is None
        assert set(timing.ms) == {"1x16", "2x8"}
        assert all(len(values) == 2 and min(values) > 0 for values in timing.rounds.values())
    assert timings[0].error < 1e-5  # the same arithmetic as the student's evaluation in torch
    assert ratios(timings, "1x16")[OURS] == 1
    assert "torch-fp32" in " ".join(messages)


def test_only_models_that_are_timed_are_loaded_to_compare(folders, tmp_path, monkeypatch):
    loaded = []
    expected = run._expected
    monkeypatch.setattr(run, "_expected", lambda folder, tokens: loaded.append(folder.name) or expected(folder, tokens))
    bench(folders[0], tmp_path, BenchPlan(["torch-fp32"], ["1x8"], rounds=1, seconds=0.01), plain=folders[1])
    assert loaded == [engines.PLAIN]


def test_engines_that_are_missing_fail_or_answer_wrongly_are_named(folders, tmp_path, monkeypatch):
    made_up = {
        "absent": BenchEngine("absent", engines._ours, modules=("no_such_module",)),
        "strict": BenchEngine(OURS, engines._ours, tolerance=-1.0),
    }
    monkeypatch.setattr(run, "ENGINES", made_up)
    absent, strict = bench(folders[0], tmp_path, BenchPlan(list(made_up), ["1x8"]), plain=folders[1])
    assert "no_such_module" in absent.failed and "pip install" in absent.failed
    assert strict.error is not None and f"{strict.error:.0%}" in strict.failed
    assert not absent.ms
    assert not strict.ms


def test_an_engine_that_dies_says_why(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "ENGINES", {"nobody": BenchEngine("nobody", engines._ours)})
    (timing,) = bench(folders[0], tmp_path, BenchPlan(["nobody"], ["1x8"]), plain=folders[1])
    assert "KeyError: 'nobody'" in timing.failed


def test_only_classifiers_are_timed(tmp_path):
    write_random(tmp_path / "packed", tmp_path / "float", SMALL, HeadKind.QUESTION_ANSWERING)
    with pytest.raises(OptionError, match=re.escape(str(tmp_path / "packed"))):
        bench(tmp_path / "packed", tmp_path / "run", BenchPlan([OURS], ["1x8"]))


def test_unknown_engines_get_a_suggestion(folders, tmp_path):
    with pytest.raises(OptionError, match=r"torch-fp23.*torch-fp32"):
        bench(folders[0], tmp_path, BenchPlan(["torch-fp23"], ["1x8"]))


def test_no_ratio_without_ours():
    assert ratios([Timing("torch-fp32", ms={"1x8": 2.0})], "1x8") == {}


def test_the_command_prints_a_table_json_and_a_chart(folders, tmp_path, monkeypatch):
    monkeypatch.setenv("TERNARYBERT_KERNEL", "portable")
    arguments = ["bench", str(folders[0]), "--teacher", str(folders[1]), "--engine", OURS, "--batch", "1x8"]
    arguments += ["--rounds", "1", "--seconds", "0.01", "--plot", str(tmp_path / "chart.svg"), "--json"]
    result = CliRunner().invoke(make_app(["bench", "inspect"]), arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["engines"][0]["ratios"] == {"1x8": 1.0}
    assert report["gmacs"]["1x8"] > 0
    assert report["kernel"] == "portable"
    assert 0 < report["peak_gmacs"] < peak_gmacs(kernels()[0])
    assert (tmp_path / "chart.svg").read_text().startswith("<?xml")


def test_a_kernel_that_does_not_run_here_is_told_before_the_work(folders, monkeypatch):
    monkeypatch.setenv("TERNARYBERT_KERNEL", "abacus")
    with pytest.raises(KernelError, match=r"TERNARYBERT_KERNEL.*abacus"):
        CliRunner().invoke(make_app(["bench", "inspect"]), ["bench", str(folders[0])], catch_exceptions=False)


def test_the_command_without_a_model_makes_one(tmp_path, monkeypatch):
    monkeypatch.setitem(random_model.SHAPES, "base", SMALL)
    arguments = ["bench", "--engine", OURS, "--batch", "1x8", "--rounds", "1", "--seconds", "0.01"]
    result = CliRunner().invoke(make_app(["bench", "inspect"]), arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "2 layers x 32" in result.stdout
