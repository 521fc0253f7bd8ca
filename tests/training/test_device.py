"""Precision of students and their teacher, and the trackers of a run."""

from functools import partial

import pytest
import torch
import yaml
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from ternarybert.compare.layers import BaselineLinear
from ternarybert.compare.models import quantize_model
from ternarybert.compare.quantizers import minmax
from ternarybert.errors import OptionError
from ternarybert.recipe import PRESETS
from ternarybert.student import TernaryLinear, make_student
from ternarybert.training.device import check_trackers, make_accelerator, set_precision
from ternarybert.training.options import TrainingOptions
from ternarybert.training.ternarize import ternarize
from tests import tiny

SHORT = TrainingOptions(device="cpu", bf16=True)


def gradients(student):
    return {module.gradient_dtype for module in student.modules() if isinstance(module, TernaryLinear)}


@pytest.mark.parametrize("bits", ["2-2-8", "2-2-32"])
def test_bfloat16_is_for_the_gradients_of_quantized_students(bits):
    student = make_student(tiny.bert(), PRESETS["default"].with_bits(bits))
    assert not set_precision(student, SHORT)
    assert gradients(student) == {torch.bfloat16}
    assert not set_precision(student, TrainingOptions(device="cpu"))
    assert gradients(student) == {torch.float32}


def test_all_others_are_left_to_autocast(monkeypatch):
    assert set_precision(make_student(tiny.bert(), PRESETS["default"].with_bits("32-2-8")), SHORT)
    assert set_precision(tiny.bert(), SHORT)
    monkeypatch.setenv("TERNARYBERT_KERNEL", "portable")
    assert set_precision(make_student(tiny.bert(), PRESETS["default"]), SHORT)


def test_a_baseline_is_shortened_too():
    model = quantize_model(tiny.bert(), lambda _: partial(minmax, bits=8), activation_bits=8)
    assert not set_precision(model, SHORT)
    assert {layer.gradient_dtype for layer in model.modules() if isinstance(layer, BaselineLinear)} == {torch.bfloat16}


@pytest.mark.filterwarnings("ignore")  # TensorBoard's own
def test_a_real_tracker_gets_losses_scores_and_steps(teacher, data, tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    options = TrainingOptions(device="cpu", max_steps=10, evaluations=2, report_to="tensorboard")
    report = ternarize(teacher, data, tmp_path / "out", options=options)
    (events,) = (tmp_path / "out.runs" / "ternarybert").glob("events.out.tfevents.*")
    log = EventAccumulator(str(events.parent))
    log.Reload()
    assert {"train/loss", "train/learning_rate", f"eval/{report.metric}"} <= set(log.Tags()["scalars"])
    scores = [(event.step, event.value) for event in log.Scalars(f"eval/{report.metric}")]
    assert scores == [(each.step, pytest.approx(each.scores[report.metric])) for each in report.evaluations]
    assert [event.step for event in log.Scalars("train/loss")] == [entry["step"] for entry in report.losses]
    (stored,) = (tmp_path / "out.runs").rglob("hparams.yml")
    hyperparameters = yaml.safe_load(stored.read_text())
    assert hyperparameters["schedule.learning_rate"] == PRESETS["default"].schedule.learning_rate
    assert hyperparameters["bits"] == str(PRESETS["default"].bits)
    assert (hyperparameters["seed"], hyperparameters["max_steps"]) == (42, 10)


def test_trackers_are_checked_before_any_work(teacher, data, tmp_path):
    assert check_trackers("none") == []
    for wrong in ("tensorbord", "tensorboard,tensorbord"):
        with pytest.raises(OptionError, match="tensorbord"):
            check_trackers(wrong)
    with pytest.raises(OptionError, match="pip install aim"):
        ternarize(teacher, data, tmp_path / "out", options=TrainingOptions(report_to="aim"))
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("device", ["cuda", "gpu"])
def test_a_device_that_is_not_there_is_an_error(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OptionError, match=device):
        TrainingOptions(device=device)


def test_the_state_of_the_calling_application_is_kept_where_it_fits(tmp_path):
    AcceleratorState._reset_state(reset_partial_state=True)
    hosts = Accelerator(cpu=True)
    hosts.state.of_the_application = 7
    make_accelerator(TrainingOptions(device="cpu"), tmp_path, PRESETS["default"])
    assert AcceleratorState().of_the_application == 7
    AcceleratorState._reset_state(reset_partial_state=True)
    Accelerator(cpu=True, mixed_precision="bf16")  # ours rounds nothing but what set_precision says
    assert make_accelerator(TrainingOptions(device="cpu"), tmp_path, PRESETS["default"]).mixed_precision == "no"
    AcceleratorState._reset_state(reset_partial_state=True)
