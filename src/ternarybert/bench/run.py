"""Runs the engines by turns and collects medians.

Engines take turns shape by shape and round by round, so that a slow moment of the machine hits all of them. Before
anything is timed, every engine answers the same sentences, and one that answers wrongly is not timed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ternarybert.bench.inputs import CHECK, SHAPES, Tokens, read_inputs, write_inputs
from ternarybert.bench.peers import OURS, PACKED, PEERS, PLAIN, Peer
from ternarybert.errors import MissingExtraError, OptionError, suggest
from ternarybert.families import HeadKind, head_kind
from ternarybert.native import KERNEL_VARIABLE, choose_kernel
from ternarybert.packed.folder import read
from ternarybert.packed.hf_folder import read_config, write_plain

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What is timed, and how. Each round gives every engine `seconds` for every shape."""

    engines: Sequence[str] = tuple(PEERS)
    shapes: Sequence[str] = SHAPES
    threads: int = 1
    rounds: int = 5
    seconds: float = 0.5
    kernel: str = field(default_factory=choose_kernel)  # of ours


@dataclass
class Timing:
    """What was measured of one engine."""

    name: str
    ms: dict[str, float] = field(default_factory=dict)  # by shape: median over the rounds
    rounds: dict[str, list[float]] = field(default_factory=dict)
    error: float | None = None  # of its answers, as a share of their spread
    memory: int | None = None  # bytes that loading it added
    peak: int | None = None  # bytes that loading and all batches added at most
    failed: str | None = None


class Worker:
    """An engine in its own process."""

    def __init__(self, peer: Peer, run: Path, plan: Plan) -> None:
        self.peer = peer
        threads = str(plan.threads)
        environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, KERNEL_VARIABLE: plan.kernel}
        with (run / f"{peer.name}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ternarybert.bench.worker", peer.name, str(run), threads],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **environment},
            )
        self.log = run / f"{peer.name}.log"

    def hear(self) -> dict[str, Any]:
        """The next answer; a process that ended says why in its log."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        tail = self.log.read_text(errors="replace").strip().splitlines()[-1:] or ["no message"]
        return {"failed": f"ended with code {self.process.wait()}: {tail[0][:200]}"}

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for the answer."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # `hear` says why
            print(json.dumps(request), file=self.process.stdin, flush=True)
        return self.hear()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate()  # waits, and closes its pipes


def bench(
    model: Path, run: Path, plan: Plan, *, plain: Path | None = None, tell: Tell = lambda _: None
) -> list[Timing]:
    """Time the plan's engines on the packed folder `model`; files go into the empty folder `run`.

    The other engines get `plain`, normally the teacher, or else the packed model unpacked. Engines that are not there
    or fail are in the result with the reason.
    """
    peers = [_peer(name) for name in plan.engines]
    for folder in (model, plain):
        if folder is not None and head_kind(read_config(folder)) is not HeadKind.SEQUENCE_CLASSIFICATION:
            raise OptionError(f"{folder} is not a text classifier, and only those are timed")
    tell("preparing the model")
    _prepare(model, plain, run, tuple(plan.shapes))
    timings = {peer.name: Timing(peer.name) for peer in peers}
    with ExitStack() as stack:
        workers = list(_start(peers, run, plan, timings, stack, tell))
        _compare(workers, run, timings)
        for number in range(plan.rounds):
            tell(f"round {number + 1} of {plan.rounds}")
            for shape in plan.shapes:
                for worker in workers:
                    _time(worker, shape, plan.seconds, timings[worker.peer.name])
    for timing in timings.values():
        timing.ms = {shape: statistics.median(values) for shape, values in timing.rounds.items()}
    return list(timings.values())


def _peer(name: str) -> Peer:
    if name not in PEERS:
        raise OptionError(f"unknown engine '{name}'{suggest(name, PEERS)}")
    return PEERS[name]


def _prepare(model: Path, plain: Path | None, run: Path, shapes: tuple[str, ...]) -> None:
    (run / PACKED).symlink_to(model.resolve(), target_is_directory=True)
    if plain is None:
        write_plain(run / PLAIN, read(model), tokenizer=model)
    else:
        (run / PLAIN).symlink_to(plain.resolve(), target_is_directory=True)
    write_inputs(run / "inputs.npz", shapes, read_config(run / PLAIN))


def _start(
    peers: list[Peer], run: Path, plan: Plan, timings: dict[str, Timing], stack: ExitStack, tell: Tell
) -> Iterator[Worker]:
    """The engines that load, one after the other: some make their files from another's."""
    for peer in peers:
        timing = timings[peer.name]
        missing = [name for name in peer.modules if importlib.util.find_spec(name) is None]
        if missing:
            timing.failed = f"not installed: {', '.join(missing)} (pip install 'ternarybert[bench,train]')"
            continue
        tell(f"loading {peer.name}")
        if peer.converts:  # in a process of its own: the engine's memory is not that of its tools
            with Worker(peer, run, plan) as first:
                first.hear()
        worker = stack.enter_context(Worker(peer, run, plan))
        answer = worker.hear()
        timing.failed, timing.memory = answer.get("failed"), answer.get("memory")
        if timing.failed is None:
            yield worker


def _compare(workers: list[Worker], run: Path, timings: dict[str, Timing]) -> None:
    """Compare every engine's answers with what its model answers in torch: ours to the bit, int8 within its error."""
    tokens = read_inputs(run / "inputs.npz")[CHECK]
    models = {worker.peer.name: PACKED if worker.peer.name == OURS else PLAIN for worker in workers}
    expected = {where: _expected(run / where, tokens) for where in set(models.values())}
    for worker in list(workers):
        peer, timing = worker.peer, timings[worker.peer.name]
        given = np.load(run / f"answers.{peer.name}.npy")
        wanted = expected[models[peer.name]][peer.output]
        if given.shape != wanted.shape:
            timing.failed = f"answers have the shape {given.shape}, not {wanted.shape}"
        else:
            timing.error = float(np.sqrt(np.mean((given - wanted) ** 2)) / np.std(wanted))
            if not timing.error <= peer.tolerance:
                timing.failed = f"answers are off by {timing.error:.0%} of their spread"
        if timing.failed is not None:
            workers.remove(worker)


def _expected(folder: Path, tokens: Tokens) -> dict[str, Any]:
    """Logits and last hidden states of a folder, packed or plain, in torch."""
    try:
        import torch
        from transformers import AutoModelForSequenceClassification

        import ternarybert.hf  # noqa: F401  registers packed folders
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} is missing: pip install 'ternarybert[train]'") from error
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        feed = {name: torch.from_numpy(array) for name, array in tokens.feed().items()}
        out = model(**feed, output_hidden_states=True)
    return {"logits": out.logits.numpy(), "hidden": out.hidden_states[-1].numpy()}


def _time(worker: Worker, shape: str, seconds: float, timing: Timing) -> None:
    if timing.failed is not None:
        return
    answer = worker.ask({"shape": shape, "seconds": seconds})
    timing.failed = answer.get("failed")
    if timing.failed is None:
        timing.rounds.setdefault(shape, []).append(answer["ms"])
        timing.peak = answer["peak"]


def ratios(timings: Sequence[Timing], shape: str) -> dict[str, float]:
    """How many times as long as ours the others take."""
    found = {timing.name: timing.ms[shape] for timing in timings if shape in timing.ms}
    return {name: ms / found[OURS] for name, ms in found.items()} if OURS in found else {}
