"""Where a run computes, with how many processes, in which precision, and from which random state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState
from accelerate.utils import ProjectConfiguration
from transformers import PreTrainedModel

from ternarybert.errors import OptionError
from ternarybert.student.products import ShortGradients
from ternarybert.training.options import TrainingOptions

TRACKED_RUN = "ternarybert"  # the name of a run in its trackers


def make_accelerator(options: TrainingOptions, work: Path) -> Accelerator:
    """The device, the processes that torchrun started, and the trackers of `report_to`."""
    # All accelerators of a process share their state: without this, a second run would get the device of the first.
    AcceleratorState._reset_state(reset_partial_state=True)
    names = [] if options.report_to == "none" else options.report_to.split(",")
    logs = os.environ.get("TENSORBOARD_LOGGING_DIR", str(work.with_suffix(".runs")))  # the work folder is removed
    try:
        accelerator = Accelerator(
            cpu=options.uses_cpu,
            mixed_precision="no",  # see set_precision
            kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)],
            log_with=names or None,
            project_config=ProjectConfiguration(logging_dir=logs),
        )
    except ValueError as error:
        raise OptionError(f"report_to: {error}") from error
    if "all" not in names and len(accelerator.log_with) < len(names):
        raise OptionError(f"report_to is '{options.report_to}', which is not installed: pip install {' '.join(names)}")
    if names:
        accelerator.init_trackers(TRACKED_RUN)
    return accelerator


def set_precision(model: PreTrainedModel, options: TrainingOptions) -> bool:
    """Prepare a model for `options.bf16`; whether its forward passes run under autocast.

    Autocast would round activations before they are quantized, so on a CPU quantized students use bfloat16 for
    gradients only. All other models, such as float students, run under autocast.
    """
    layers = [module for module in model.modules() if isinstance(module, ShortGradients) and module.shortens]
    gradients_only = options.bf16 and options.uses_cpu and bool(layers)
    for layer in layers:
        layer.gradients = torch.bfloat16 if gradients_only else torch.float32
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
