"""Where a run computes, with how many processes, in which precision, and from which random state."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState, PartialState, is_initialized
from accelerate.tracking import get_available_trackers
from accelerate.utils import LoggerType, ProjectConfiguration
from transformers import PreTrainedModel

from ternarybert.errors import OptionError, suggest
from ternarybert.recipe import Recipe
from ternarybert.student.products import Bf16Gradients
from ternarybert.training.options import TrainingOptions

TRACKED_RUN = "ternarybert"  # the name of a run in its trackers


def check_trackers(report_to: str) -> list[str]:
    """The trackers of `report_to`; an error for one that accelerate does not support or that is not installed."""
    names = [] if report_to == "none" else report_to.split(",")
    known, installed = [str(each.value) for each in LoggerType], {str(each) for each in get_available_trackers()}
    for name in names:
        if name not in known:
            raise OptionError(f"unknown tracker '{name}'{suggest(name, known)}")
        if name != "all" and name not in installed:
            raise OptionError(f"the tracker '{name}' is not installed: pip install {name}")
    return names


def make_accelerator(options: TrainingOptions, work: Path, recipe: Recipe) -> Accelerator:
    """The device, the processes that torchrun started, and the trackers of `report_to`."""
    _drop_state_of_other_device(options)
    names = check_trackers(options.report_to)
    logs = os.environ.get("TENSORBOARD_LOGGING_DIR", str(work.with_suffix(".runs")))  # the work folder is removed
    accelerator = Accelerator(
        cpu=options.uses_cpu,
        mixed_precision="no",  # see set_precision
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
        log_with=names or None,
        project_config=ProjectConfiguration(logging_dir=logs),
    )
    if names:
        accelerator.init_trackers(TRACKED_RUN, config=hyperparameters(recipe, options))
    return accelerator


def hyperparameters(recipe: Recipe, options: TrainingOptions) -> dict[str, bool | int | float | str]:
    """The recipe and the options as a flat dictionary of plain values, which is all that every tracker takes."""
    names = ("seed", "device", "precision", "accumulation", "evaluations", "max_steps")
    return dict(_flat(recipe.to_dict() | {name: getattr(options, name) for name in names}))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, bool | int | float | str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, (bool, int, float, str)) else str(value)


def _drop_state_of_other_device(options: TrainingOptions) -> None:
    """Let a run have the device that it asks for.

    All accelerators of a process share one state, and the first one fixes device and precision. So the state of an
    earlier run, or of the application that calls us, is dropped, but only where it does not fit this run; accelerate
    has no public way to have two.
    """
    device = "cpu" if options.uses_cpu else "cuda"
    other_device = bool(PartialState._shared_state) and PartialState().device.type != device
    if other_device or (is_initialized() and AcceleratorState().mixed_precision != "no"):
        AcceleratorState._reset_state(reset_partial_state=True)


def set_precision(model: PreTrainedModel, options: TrainingOptions) -> bool:
    """Prepare a model for `options.bf16`; whether its forward passes run under autocast.

    Autocast would round activations before they are quantized, so on a CPU quantized students use bfloat16 for
    gradients only. All other models, such as float students, run under autocast.
    """
    candidates = (module for module in model.modules() if isinstance(module, Bf16Gradients))
    layers = [layer for layer in candidates if layer.supports_bf16_gradients]
    gradients_only = options.bf16 and options.uses_cpu and bool(layers)
    for layer in layers:
        layer.gradient_dtype = torch.bfloat16 if gradients_only else torch.float32
    return options.bf16 and not gradients_only


def random_state() -> dict[str, Any]:
    """The state of torch's generators, the only ones that training draws from."""
    state: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Continue with the same random numbers."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
