"""The queue in front of an engine. Requests wait only while the engine is busy.

A few threads, one for each core that the engine may use, take whatever is queued, up to a number of tokens, run it as
one batch and take again; there is no timer. A batch that is all there is to do uses all cores. Otherwise each runs on
its thread alone: threads that share a batch wait for each other, and for longer when the event loop takes one of their
cores. The threads also tokenize short requests, when they take them: handing those to another thread first would cost
more. A request with more texts than fit into its batch goes on behind the others, so a large one does not hold up small
ones. Which texts share a batch has no influence on their results (docs/explanation/exactness.md).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from ternarybert.errors import InputError
from ternarybert.runtime.network import Batch, Floats, Output, Sizes
from ternarybert.serve.metrics import ServerMetrics

_PER_TOKEN = (Output.HIDDEN, Output.TOKEN_LOGITS)


class RunBatch(Protocol):
    """`Engine.run`."""

    def __call__(self, batch: Batch, output: Output, *, alone: bool) -> Floats:
        """The rows of the output."""


class EngineJob:
    """The sequences of one request, and later their rows. With `prepare` the sequences are made when it is its turn."""

    __slots__ = (
        *("cancelled", "error", "finished", "inference", "loop", "missing", "next", "output", "prepare", "queued"),
        *("rows", "sequences", "size", "started"),
    )

    def __init__(
        self,
        sequences: Sequence[tuple[Any, Any]],
        output: Output,
        finished: Callable[[EngineJob], None],
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        prepare: Callable[[], Sequence[tuple[Any, Any]]] | None = None,
        size: int | None = None,
    ) -> None:
        self.sequences, self.output, self.prepare = sequences, output, prepare  # ids, and types or None
        self.finished, self.loop = finished, loop
        self.size = len(sequences) if size is None else size
        self.rows: list[Floats] = [None] * self.size  # type: ignore[list-item]
        self.next, self.missing = 0, self.size
        self.cancelled = False
        self.error: Exception | None = None
        self.queued = self.started = time.perf_counter()
        self.inference = 0.0  # seconds of the batches that it was part of

    @property
    def waited(self) -> float:
        """Seconds in the queue before its first batch."""
        return self.started - self.queued


class BatchQueue:
    """Jobs that wait for an engine, and the threads that run them."""

    def __init__(self, run: RunBatch, max_tokens: int, metrics: ServerMetrics, threads: int = 1) -> None:
        self._run, self._max_tokens, self._metrics = run, max_tokens, metrics
        self._arrived: deque[EngineJob] = deque()  # not yet tokenized
        self._jobs: deque[EngineJob] = deque()
        self._running = 0  # batches
        self._ready = threading.Condition()
        self._closed = False
        self._threads = [threading.Thread(target=self._work, name="engine", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def put(self, job: EngineJob) -> None:
        """Queue a job. Unless it is cancelled before, its `finished` is called, by its event loop if it has one."""
        job.queued = time.perf_counter()
        with self._ready:
            if self._closed:
                raise InputError("the queue is closed")
            self._arrived.append(job)
            self._ready.notify()
        self._metrics.add("te_queue_size", job.size)

    def cancel(self, job: EngineJob) -> None:
        """Do not compute what has not been computed of this job."""
        with self._ready:
            job.cancelled = True
            for waiting in (self._arrived, self._jobs):
                if job in waiting:
                    waiting.remove(job)
                    self._metrics.add("te_queue_size", job.next - job.size)

    @property
    def alive(self) -> bool:
        """Whether jobs are still computed."""
        return all(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """End the threads when all jobs are done."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    def _work(self) -> None:
        while self._wait():
            _finish(self._prepare())
            parts, alone = self._take()
            if parts:
                self._metrics.add("te_queue_size", -len(parts))
                _finish(self._run_batch(parts, alone))
            del parts  # while the thread waits, it keeps nothing alive

    def _wait(self) -> bool:
        """Whether there is something to compute; false at the end."""
        with self._ready:
            while not self._arrived and not self._jobs and not self._closed:
                self._ready.wait()
            return bool(self._arrived or self._jobs)

    def _prepare(self) -> list[EngineJob]:
        """Tokenize what has arrived, as far as it fits into a batch; the jobs for which that failed."""
        failed: list[EngineJob] = []
        tokens = 0
        while tokens < self._max_tokens:
            with self._ready:
                if not self._arrived:
                    break
                job = self._arrived.popleft()
            if job.prepare is not None:
                try:
                    job.sequences = job.prepare()
                except Exception as error:  # its request hears of it
                    job.error = error
            with self._ready:
                if job.error is None and not job.cancelled:
                    self._jobs.append(job)
                    tokens += sum(len(ids) for ids, _ in job.sequences)
                    continue
            self._metrics.add("te_queue_size", -job.size)
            if not job.cancelled:
                failed.append(job)
        return failed

    def _take(self) -> tuple[list[tuple[EngineJob, int]], bool]:
        """The next batch, jobs and the index of a sequence of each, and whether it is to run on this thread alone."""
        with self._ready:
            parts: list[tuple[EngineJob, int]] = []
            tokens = 0
            while self._jobs and (not parts or self._jobs[0].output == parts[0][0].output):
                job, full = self._jobs[0], False
                while job.next < len(job.sequences) and not full:
                    tokens += len(job.sequences[job.next][0])
                    full = bool(parts) and tokens > self._max_tokens
                    if not full:
                        parts.append((job, job.next))
                        job.next += 1
                if full:
                    self._jobs.rotate(-1 if job.next else 0)  # it has had a turn
                    break
                self._jobs.popleft()
            alone = bool(self._running or self._jobs or self._arrived)
            self._running += bool(parts)
            if self._jobs:  # there is work for another thread
                self._ready.notify()
            return parts, alone

    def _run_batch(self, parts: list[tuple[EngineJob, int]], alone: bool) -> list[EngineJob]:
        """Compute a batch; the jobs that are complete with it."""
        start = time.perf_counter()
        batch = _batch([job.sequences[index] for job, index in parts])
        output = parts[0][0].output
        error: Exception | None = None
        rows: Sequence[Floats] = ()
        try:
            result = self._run(batch, output, alone=alone)
            starts = batch.starts() if output in _PER_TOKEN else range(len(parts) + 1)
            rows = [result[starts[i] : starts[i + 1]] for i in range(len(parts))]
        except Exception as failure:  # whatever it is, it must not end the thread, and every caller must hear of it
            error = failure
        seconds = time.perf_counter() - start
        self._metrics.observe("te_batch_next_size", len(parts))
        self._metrics.observe("te_batch_next_tokens", len(batch.ids))
        finished = []
        with self._ready:  # other threads may have other sequences of the same jobs
            self._running -= 1
            for number, (job, index) in enumerate(parts):
                if index == 0:
                    job.started = start
                if number == 0 or parts[number - 1][0] is not job:
                    job.inference += seconds
                job.missing -= 1
                if error is not None:
                    job.error = error
                else:
                    job.rows[index] = rows[number]
                if not job.missing and not job.cancelled:
                    finished.append(job)
        return finished


class QueuedRunner:
    """A runner whose batches wait in the queue with those of other requests; for code that calls and waits."""

    def __init__(self, queue: BatchQueue, sizes: Sizes, kernel: str) -> None:
        self._queue, self.sizes, self.kernel = queue, sizes, kernel
        self._local = threading.local()

    def watch(self, cancelled: Callable[[], bool]) -> None:
        """Ask this before every batch of the calling thread whether to go on."""
        self._local.cancelled = cancelled

    def run(self, batch: Batch, output: Output, *, alone: bool = False) -> Floats:
        """Run the model; `Output` defines the rows. On which threads is for the queue to decide."""
        if getattr(self._local, "cancelled", bool)():
            raise InputError("the request was cancelled")
        starts = batch.starts()
        types = batch.types
        sequences = [
            (batch.ids[first:last], None if types is None else types[first:last]) for first, last in pairwise(starts)
        ]
        done = threading.Event()
        job = EngineJob(sequences, output, lambda _: done.set())
        self._queue.put(job)
        done.wait()
        if job.error is not None:
            raise job.error
        return np.concatenate(job.rows)

    def close(self) -> None:
        """The engine behind the queue is closed by its owner."""


def _finish(jobs: list[EngineJob]) -> None:
    """Tell the owners: those that wait in a thread at once, those of the event loop together.

    A process has one loop, and waking it for each job would take the engine's time.
    """
    _tell([job for job in jobs if job.loop is None])
    waiting = [job for job in jobs if job.loop is not None]
    if waiting:
        waiting[0].loop.call_soon_threadsafe(_tell, waiting)  # type: ignore[union-attr]


def _tell(jobs: list[EngineJob]) -> None:
    for job in jobs:
        job.finished(job)


def _batch(sequences: list[tuple[Any, Any]]) -> Batch:
    """One batch; sequences without token types are of type 0."""
    if all(types is None for _, types in sequences):
        return Batch.of([ids for ids, _ in sequences])
    filled = [np.zeros(len(ids), np.int32) if types is None else types for ids, types in sequences]
    return Batch.of([ids for ids, _ in sequences], filled)
