"""Options in groups: each is declared once, as a field of a small frozen class, and commands ask for the groups.

    @with_options
    def ternarize(teacher: ..., data: DataOptions, how: TrainOptions) -> None: ...

Typer sees one option per field.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from ternarybert.distill.run import Settings

_TRAINING, _OUTPUT = "Training", "Output"


def option(*names: str, help: str, panel: str, **more: Any) -> Any:
    """An option in a named panel of the help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer wants it: the fields of its groups as options of their own."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _fields(groups[name])
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @wraps(command)
    def flat(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _fields(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(f.name, kind, default=f.default, annotation=hints[f.name]) for f in fields(group)]


@dataclass(frozen=True)
class TrainOptions:
    """How to train, and on what."""

    epochs: Annotated[
        float | None, option("--epochs", help="Passes over the rows.", panel=_TRAINING, metavar="NUMBER")
    ] = None
    batch_size: Annotated[
        int | None, option("--batch-size", help="Rows per step.", panel=_TRAINING, metavar="ROWS")
    ] = None
    learning_rate: Annotated[
        float | None, option("--learning-rate", help="The highest of the schedule.", panel=_TRAINING, metavar="RATE")
    ] = None
    max_steps: Annotated[
        int | None,
        option(
            "--max-steps",
            help="End after so many steps, not by epochs.",
            panel=_TRAINING,
            min=1,
            metavar="STEPS",
        ),
    ] = None
    evaluations: Annotated[
        int, option("--evaluations", help="How often to evaluate and to save a checkpoint.", panel=_TRAINING, min=1)
    ] = 10
    accumulate: Annotated[
        int, option("--accumulate", help="Parts of a batch computed in turn, to save memory.", panel=_TRAINING, min=1)
    ] = 1
    seed: Annotated[
        int, option("--seed", help="Of everything random.", panel=_TRAINING, min=0, max=2**32 - 1, metavar="NUMBER")
    ] = 42
    device: Annotated[
        str | None, option("--device", help="cpu or cuda; by default cuda where there is one.", panel=_TRAINING)
    ] = None
    bf16: Annotated[bool, option("--bf16", help="Compute in bfloat16 where it is safe.", panel=_TRAINING)] = False
    threads: Annotated[int | None, option("--threads", help="Processor threads.", panel=_TRAINING, min=1)] = None
    report_to: Annotated[
        str, option("--report-to", help="A tracker: tensorboard, wandb, mlflow, trackio, ...", panel=_TRAINING)
    ] = "none"

    def schedule(self) -> dict[str, Any]:
        """What was said about the schedule, as fields of a recipe."""
        said = {"epochs": self.epochs, "batch_size": self.batch_size, "learning_rate": self.learning_rate}
        return {f"schedule.{name}": value for name, value in said.items() if value is not None}


@dataclass(frozen=True)
class OutputOptions:
    """Where the result goes."""

    output: Annotated[
        Path | None, option("--output", "-o", help="Folder to write.", panel=_OUTPUT, metavar="FOLDER")
    ] = None
    resume: Annotated[
        bool, option("--resume", help="Go on from the last checkpoint of an interrupted run.", panel=_OUTPUT)
    ] = False
    force: Annotated[bool, option("--force", help="Replace an older model; drop an unfinished run.", panel=_OUTPUT)] = (
        False
    )
    keep_last: Annotated[
        bool, option("--keep-last", help="Write the model of the last evaluation, not the best.", panel=_OUTPUT)
    ] = False
    keep_checkpoints: Annotated[
        bool, option("--keep-checkpoints", help="Keep the work folder when all is done.", panel=_OUTPUT)
    ] = False
    as_json: Annotated[bool, option("--json", help="Print the result as one JSON object, last.", panel=_OUTPUT)] = False


def settings(how: TrainOptions, out: OutputOptions, *callbacks: Any) -> Settings:
    """The options in the words of the jobs; what this machine cannot do is said now."""
    import torch

    from ternarybert.distill.run import Settings

    check_device(how.device)
    _check_tracker(how.report_to)
    if how.threads is not None:
        torch.set_num_threads(how.threads)
    return Settings(
        seed=how.seed,
        device=how.device,
        bf16=how.bf16,
        accumulation=how.accumulate,
        evaluations=how.evaluations,
        max_steps=how.max_steps or -1,
        report_to=how.report_to,
        resume=out.resume,
        force=out.force,
        keep_last=out.keep_last,
        keep_checkpoints=out.keep_checkpoints,
        callbacks=callbacks,
    )


def check_device(device: str | None) -> None:
    """Refuse a device that is not there; a run that quietly takes another would take days."""
    import torch

    if device not in (None, "cpu", "cuda"):
        raise typer.BadParameter(f"'{device}' is not one of: cpu, cuda", param_hint="--device")
    if device == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("torch sees no CUDA device here; leave it out, or give cpu", param_hint="--device")


def _check_tracker(name: str) -> None:
    from transformers.integrations import get_reporting_integration_callbacks

    if name in ("none", "all"):
        return
    try:
        for callback in get_reporting_integration_callbacks([name]):
            callback()
    except (ImportError, RuntimeError, ValueError) as error:
        raise typer.BadParameter(str(error).split("\n")[0], param_hint="--report-to") from error
