"""Answers do not depend on what else is asked: the queue merges, splits and cancels requests, the bits stay."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ternarybert.runtime import load
from ternarybert.runtime.network import Batch, Output
from ternarybert.serve.batching import BatchQueue, EngineJob, QueuedRunner
from ternarybert.serve.metrics import ServerMetrics
from tests import tiny


def sentences(count, seed=0):
    rng = random.Random(seed)
    return [" ".join(rng.choices(tiny.WORDS, k=rng.randint(1, 40))) for _ in range(count)]


def test_the_same_bits_under_load(server, direct):
    """Sixteen clients ask for everything at once; every answer is that of a call by itself."""
    texts = sentences(60)
    embedder, classes, names = direct["embedder"], direct["classes"], direct["names"]
    vectors = [embedder.encode(text, normalize=True).tolist() for text in texts]
    scores = [classes.predict(text).scores for text in texts]
    tags = [names.predict(text).entities for text in texts]
    before = server.metric("te_batch_next_size_count")

    def ask(number):
        rng = random.Random(number)
        i, n = rng.randrange(len(texts)), rng.choice((1, 1, 1, 5))
        some = [rng.randrange(len(texts)) for _ in range(n)]
        kind = number % 3
        if kind == 0:
            return server.ok("/embed", {"inputs": [texts[j] for j in some]}) == [vectors[j] for j in some]
        if kind == 1:
            found = server.ok("/models/classes/predict", {"inputs": [[texts[j]] for j in some]})
            return [{one["label"]: one["score"] for one in each} for each in found] == [scores[j] for j in some]
        found = server.ok("/models/names/ner", {"inputs": texts[i]})
        return [(e["word"], e["score"]) for e in found] == [(e.text, e.score) for e in tags[i]]

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(300)))
    assert server.metric("te_batch_next_size_count") - before < 300  # requests did share batches


class SlowEngine:
    """A real engine that can be held, and that remembers its batches."""

    def __init__(self, model):
        self.model, self.go, self.batches, self.alone = model, threading.Event(), [], []

    def run(self, batch, output, *, alone):
        self.batches.append((len(batch.lengths), int(batch.lengths.sum())))
        self.alone.append(alone)
        assert self.go.wait(20)
        return self.model.runner.run(batch, output, alone=alone)


@pytest.fixture
def engine(direct):
    return SlowEngine(direct["embedder"])


@pytest.fixture
def queue(engine):
    queue = BatchQueue(engine.run, 32, ServerMetrics())
    yield queue
    engine.go.set()
    queue.close()


def job(lengths, done, output=Output.MEAN):
    return EngineJob([(np.arange(5, 5 + n, dtype=np.int32), None) for n in lengths], output, done.append)


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_an_idle_engine_starts_at_once_and_a_busy_one_collects(queue, engine):
    done = []
    queue.put(job([4], done))
    wait_for(lambda: engine.batches)
    for _ in range(6):
        queue.put(job([8], done))
    engine.go.set()
    wait_for(lambda: len(done) == 7)
    assert engine.batches == [(1, 4), (4, 32), (2, 16)]  # at most 32 tokens


@pytest.fixture
def two_threads(engine):
    queue = BatchQueue(engine.run, 32, ServerMetrics(), threads=2)
    yield queue
    engine.go.set()
    queue.close()


def test_a_batch_shares_the_engine_only_if_there_is_other_work(two_threads, engine):
    """The first uses all threads; while it runs, the next starts on the other thread, alone; the third waits."""
    done = []
    two_threads.put(job([4], done))
    wait_for(lambda: len(engine.batches) == 1)
    two_threads.put(job([5], done))
    wait_for(lambda: len(engine.batches) == 2)
    two_threads.put(job([6], done))
    assert engine.alone == [False, True]
    engine.go.set()
    wait_for(lambda: len(done) == 3)
    assert sorted(tokens for _, tokens in engine.batches) == [4, 5, 6]


def test_threads_divide_a_large_request(two_threads, engine):
    """Both run, alone; and the rows are those of one call, in order."""
    done, lengths = [], [8 + i % 5 for i in range(20)]
    two_threads.put(job(lengths, done))
    wait_for(lambda: len(engine.batches) == 2)
    assert engine.alone == [True, True]
    engine.go.set()
    wait_for(lambda: done)
    sequences = [ids for ids, _ in done[0].sequences]
    expected = engine.model.runner.run(Batch.of(sequences), Output.MEAN)
    np.testing.assert_array_equal(np.concatenate(done[0].rows), expected)
    assert max(tokens for _, tokens in engine.batches) <= 32


def test_many_jobs_on_two_threads_some_cancelled(two_threads, engine):
    """Every job that is not cancelled is told once, with its own rows, and the gauge ends at zero."""
    engine.go.set()
    rng, done, jobs, metrics = random.Random(3), [], [], two_threads._metrics
    for _ in range(200):
        one = job([rng.randint(1, 20) for _ in range(rng.randint(1, 6))], done)
        jobs.append(one)
        two_threads.put(one)
        if rng.random() < 0.2:
            two_threads.cancel(jobs[rng.randrange(len(jobs))])
    wait_for(lambda: all(one.cancelled or one in done for one in jobs))
    wait_for(lambda: metrics.value("te_queue_size") == 0)
    assert len(done) == len({id(one) for one in done})
    for one in jobs:
        if not one.cancelled:
            expected = engine.model.runner.run(Batch.of([ids for ids, _ in one.sequences]), Output.MEAN)
            np.testing.assert_array_equal(np.concatenate(one.rows), expected)


def test_a_large_request_does_not_hold_up_small_ones(queue, engine):
    done = []
    queue.put(job([4], done))
    wait_for(lambda: engine.batches)
    large, small = job([16] * 10, done), job([16], done)
    queue.put(large)
    queue.put(small)
    engine.go.set()
    wait_for(lambda: len(done) == 3)
    assert done.index(small) < done.index(large)
    assert len(large.rows) == 10 and all(row.shape == (1, 32) for row in large.rows)


def test_outputs_are_not_mixed(queue, engine):
    done = []
    queue.put(job([4], done))
    wait_for(lambda: engine.batches)
    for output in (Output.MEAN, Output.HIDDEN, Output.MEAN):
        queue.put(job([4, 5], done, output))
    engine.go.set()
    wait_for(lambda: len(done) == 4)
    assert [len(j.rows[1]) for j in done[1:]] == [1, 5, 1]


def test_a_cancelled_request_is_not_computed(queue, engine):
    done = []
    queue.put(job([4], done))
    wait_for(lambda: engine.batches)
    unwanted, wanted = job([30], done), job([30], done)
    queue.put(unwanted)
    queue.put(wanted)
    queue.cancel(unwanted)
    engine.go.set()
    wait_for(lambda: wanted in done)
    assert engine.batches == [(1, 4), (1, 30)] and unwanted not in done


def test_an_error_of_the_engine_reaches_its_requests_only(queue, engine, direct):
    done = []
    engine.go.set()
    bad = EngineJob([(np.array([10**6], np.int32), None)], Output.MEAN, done.append)
    queue.put(bad)
    wait_for(lambda: done)
    assert bad.error is not None
    good = job([4], done)
    queue.put(good)
    wait_for(lambda: good in done)
    assert good.error is None and queue.alive


def test_a_queued_runner_is_a_runner(served_folder):
    model = load(served_folder / "answers", num_threads=1)
    queue = BatchQueue(model.runner.run, 2048, ServerMetrics())
    batch = Batch.of([np.arange(5, 30), np.arange(7, 12)], [np.zeros(25, np.int32), np.ones(5, np.int32)])
    runner = QueuedRunner(queue, model.runner.sizes, model.kernel)
    for output in (Output.HIDDEN, Output.TOKEN_LOGITS, Output.FIRST):
        np.testing.assert_array_equal(runner.run(batch, output), model.runner.run(batch, output))
    queue.close()
