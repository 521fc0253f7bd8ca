"""Time engines on one model, in turns, and collect medians.

Engines take turns shape by shape and round by round, so that a slow moment of the machine affects all of them. Before
anything is timed, every engine runs the same batch, and an engine with wrong outputs is not timed.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ternarybert.bench.engines import ENGINES, OURS, PACKED, PLAIN, BenchEngine
from ternarybert.bench.inputs import CHECK, SHAPES, TokenBatch, read_inputs, write_inputs
from ternarybert.bench.process import WorkerProcess
from ternarybert.errors import MissingExtraError, OptionError, suggest
from ternarybert.families import HeadKind, head_kind
from ternarybert.native import KERNEL_VARIABLE, choose_kernel
from ternarybert.packed.folder import read
from ternarybert.packed.hf_folder import read_config, write_plain

OnProgress = Callable[[str], None]  # receives what is being done


@dataclass(frozen=True)
class BenchPlan:
    """What is timed, and how. Each round gives every engine `seconds` for every shape."""

    engines: Sequence[str] = tuple(ENGINES)
    shapes: Sequence[str] = SHAPES
    threads: int = 1
    rounds: int = 5
    seconds: float = 0.5
    kernel: str = field(default_factory=choose_kernel)  # of our engine


@dataclass
class Timing:
    """The measurements of one engine."""

    name: str
    ms: dict[str, float] = field(default_factory=dict)  # by shape: median over the rounds
    rounds: dict[str, list[float]] = field(default_factory=dict)
    error: float | None = None  # of its outputs, as a share of their standard deviation
    memory: int | None = None  # bytes added by loading
    peak: int | None = None  # bytes added by loading and running all batches, at most
    failed: str | None = None


@dataclass(frozen=True)
class _Worker:
    """An engine and the process it runs in."""

    engine: BenchEngine
    process: WorkerProcess


def bench(
    model: Path, run: Path, plan: BenchPlan, *, plain: Path | None = None, on_progress: OnProgress = lambda _: None
) -> list[Timing]:
    """Time the plan's engines on the packed folder `model`; files go into the empty folder `run`.

    The other engines get `plain`, normally the teacher, or else the packed model unpacked. Engines that are missing
    or fail are in the result with the reason.
    """
    engines = [engine_named(name) for name in plan.engines]
    check_classifiers(model, plain)
    on_progress("preparing the model")
    prepare_run(model, plain, run, tuple(plan.shapes))
    timings = {engine.name: Timing(engine.name) for engine in engines}
    with ExitStack() as stack:
        workers = list(_start(engines, run, plan, timings, stack, on_progress))
        _check_outputs(workers, run, timings)
        for number in range(plan.rounds):
            on_progress(f"round {number + 1} of {plan.rounds}")
            for shape in plan.shapes:
                for worker in workers:
                    _time(worker.process, shape, plan.seconds, timings[worker.engine.name])
    for timing in timings.values():
        timing.ms = {shape: statistics.median(values) for shape, values in timing.rounds.items()}
    return list(timings.values())


def ratios(timings: Sequence[Timing], shape: str) -> dict[str, float]:
    """The time of each engine as a multiple of ours."""
    times = {timing.name: timing.ms[shape] for timing in timings if shape in timing.ms}
    return {name: ms / times[OURS] for name, ms in times.items()} if OURS in times else {}


def check_classifiers(*folders: Path | None) -> None:
    """Refuse models that are not text classifiers."""
    for folder in folders:
        if folder is not None and head_kind(read_config(folder)) is not HeadKind.SEQUENCE_CLASSIFICATION:
            raise OptionError(f"{folder} is not a text classifier; only text classifiers can be timed")


def engine_named(name: str) -> BenchEngine:
    """The engine of a name, or an error that names the nearest one."""
    if name not in ENGINES:
        raise OptionError(f"unknown engine '{name}'{suggest(name, ENGINES)}")
    return ENGINES[name]


def missing_modules(engine: BenchEngine) -> str | None:
    """What is not installed of what an engine needs, as a reason; None if all of it is."""
    missing = [name for name in engine.modules if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(missing)} (pip install 'ternarybert[bench,train]')" if missing else None


def prepare_run(model: Path, plain: Path | None, run: Path, shapes: tuple[str, ...]) -> None:
    """Fill the empty folder `run`: the packed model, the plain one and the batches."""
    (run / PACKED).symlink_to(model.resolve(), target_is_directory=True)
    if plain is None:
        write_plain(run / PLAIN, read(model), tokenizer=model)
    else:
        (run / PLAIN).symlink_to(plain.resolve(), target_is_directory=True)
    write_inputs(run / "inputs.npz", shapes, read_config(run / PLAIN))


def _start(
    engines: list[BenchEngine],
    run: Path,
    plan: BenchPlan,
    timings: dict[str, Timing],
    stack: ExitStack,
    on_progress: OnProgress,
) -> Iterator[_Worker]:
    """Load the engines one after the other, because some use files converted for another; yield those that load."""
    for engine in engines:
        timing = timings[engine.name]
        timing.failed = missing_modules(engine)
        if timing.failed is not None:
            continue
        on_progress(f"loading {engine.name}")
        if engine.converts:  # in another process, so that the converter's memory is not counted
            with _start_worker(engine, run, plan) as converter:
                converter.receive()
        process = stack.enter_context(_start_worker(engine, run, plan))
        reply = process.receive()
        timing.failed, timing.memory = reply.get("failed"), reply.get("memory")
        if timing.failed is None:
            yield _Worker(engine, process)


def _start_worker(engine: BenchEngine, run: Path, plan: BenchPlan) -> WorkerProcess:
    threads = str(plan.threads)
    environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, KERNEL_VARIABLE: plan.kernel}
    return WorkerProcess("ternarybert.bench.engines", engine.name, str(run), threads, environment=environment)


def _check_outputs(workers: list[_Worker], run: Path, timings: dict[str, Timing]) -> None:
    """Compare each engine's outputs with its model's in torch: ours must be equal, int8 within its error.

    Engines with wrong outputs are removed from `workers`.
    """
    batch = read_inputs(run / "inputs.npz")[CHECK]
    models = {worker.engine.name: PACKED if worker.engine.name == OURS else PLAIN for worker in workers}
    expected = {folder: _expected(run / folder, batch) for folder in set(models.values())}
    for worker in list(workers):
        engine, timing = worker.engine, timings[worker.engine.name]
        actual = np.load(run / f"answers.{engine.name}.npy")
        wanted = expected[models[engine.name]][engine.output]
        if actual.shape != wanted.shape:
            timing.failed = f"outputs have the shape {actual.shape}, not {wanted.shape}"
        else:
            timing.error = float(np.sqrt(np.mean((actual - wanted) ** 2)) / np.std(wanted))
            if not timing.error <= engine.tolerance:
                timing.failed = f"outputs are off by {timing.error:.0%} of their standard deviation"
        if timing.failed is not None:
            workers.remove(worker)


def _expected(folder: Path, batch: TokenBatch) -> dict[str, Any]:
    """Logits and last hidden states of a packed or plain folder in torch."""
    try:
        import torch
        from transformers import AutoModelForSequenceClassification

        import ternarybert.hf  # noqa: F401  registers packed folders
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} is missing: pip install 'ternarybert[train]'") from error
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        feed = {name: torch.from_numpy(array) for name, array in batch.feed().items()}
        out = model(**feed, output_hidden_states=True)
    return {"logits": out.logits.numpy(), "hidden": out.hidden_states[-1].numpy()}


def _time(process: WorkerProcess, shape: str, seconds: float, timing: Timing) -> None:
    if timing.failed is not None:
        return
    reply = process.request(shape=shape, seconds=seconds)
    timing.failed = reply.get("failed")
    if timing.failed is None:
        timing.rounds.setdefault(shape, []).append(reply["ms"])
        timing.peak = reply["peak"]
