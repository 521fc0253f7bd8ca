"""The native engine gives the oracle's bits: any shape, bits, ranges, batch, thread count and kernel."""

import dataclasses
import gc
import os
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternarybert.errors import (
    InputError,
    KernelError,
    NativeLibraryError,
    NonFiniteError,
    OptionError,
    TernaryBertError,
)
from ternarybert.native import CConfig, CError, check, kernels
from ternarybert.runtime import engine as binding
from ternarybert.runtime.engine import Engine, thread_count
from ternarybert.runtime.network import Batch, Function, Output, Range
from ternarybert.runtime.oracle import Oracle

from .networks import VOCABULARY, make_batch, make_network, split

KERNELS = kernels()
HEAD_FUNCTIONS = (Function.TANH, Function.RELU, Function.GELU, Function.IDENTITY)


@st.composite
def networks(draw):
    """Any network that a folder could hold."""
    heads = draw(st.integers(1, 4))
    width = draw(st.sampled_from([1, 3, 8, 13, 16, 32, 40]))
    weight_bits = draw(st.sampled_from([2, 2, 3, 4, 8, 32]))
    return make_network(
        draw(st.integers(0, 10_000)),
        hidden=heads * width,
        heads=heads,
        intermediate=draw(st.integers(1, 70)),
        layers=draw(st.integers(1, 3)),
        first_position=draw(st.sampled_from([0, 2])),
        types=draw(st.integers(0, 2)),
        weight_bits=weight_bits,
        word_bits=draw(st.sampled_from([2, 3, 4, 8, 32])),
        levels=draw(st.sampled_from(["linear", "log"])),
        packing=draw(st.sampled_from(["plain", "dense"])),
        rows=draw(st.booleans()),
        activation_bits=draw(st.sampled_from([8, 8, 8, 4, 32])),
        range=draw(st.sampled_from(Range)),
        symmetric=draw(st.booleans()),
        clip=draw(st.sampled_from([None, None, 1.5])),
        function=draw(st.sampled_from([Function.GELU, Function.GELU_TANH, Function.RELU])),
        dense=draw(st.booleans()),
        dense_function=draw(st.sampled_from(HEAD_FUNCTIONS)),
        dense_quantized=draw(st.booleans()),
        head=draw(st.integers(1, 5)),
        bias=draw(st.booleans()),
        norm_eps=draw(st.sampled_from([1e-12, 1e-5])),
    )


def outputs(network):
    return [output for output in Output if output != Output.DENSE or network.dense is not None]


@settings(max_examples=300)
@given(
    network=networks(),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    kernel=st.sampled_from(KERNELS),
    threads=st.sampled_from([1, 2]),
    alone=st.booleans(),
    output=st.sampled_from(Output),
)
def test_the_bits_of_the_oracle(network, lengths, kernel, threads, alone, output):
    batch = make_batch(network, lengths)
    with Engine(network, num_threads=threads, kernel=kernel) as engine:
        if output in outputs(network):
            assert engine.run(batch, output, alone=alone).tobytes() == Oracle(network).run(batch, output).tobytes()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("length", [1, 2, 3, 5, 7, 63, 64, 65])
def test_lengths_around_the_tiles(kernel, length):
    network = make_network(hidden=96, heads=3, intermediate=200, layers=1)
    batch = make_batch(network, (length, 4))
    with Engine(network, kernel=kernel) as engine:
        for output in Output:
            assert engine.run(batch, output).tobytes() == Oracle(network).run(batch, output).tobytes()


@settings(max_examples=25)
@given(
    seed=st.integers(0, 999),
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    order=st.randoms(use_true_random=False),
    range=st.sampled_from(Range),
)
def test_no_answer_depends_on_the_batch(seed, lengths, order, range):
    """Alone, in another order, on more threads and with another kernel: the same bits."""
    network = make_network(seed, range=range)
    batch = make_batch(network, lengths)
    sequences = split(batch)
    places = list(np.arange(len(sequences)))
    order.shuffle(places)
    shuffled = Batch.of([sequences[i].ids for i in places], [sequences[i].types for i in places])
    with Engine(network, num_threads=1) as one, Engine(network, num_threads=3, kernel="portable") as three:
        whole = one.run(batch, Output.LOGITS)
        assert (
            np.concatenate([three.run(sequence, Output.LOGITS) for sequence in sequences]).tobytes() == whole.tobytes()
        )
        assert three.run(shuffled, Output.LOGITS).tobytes() == whole[places].tobytes()


NETWORK = make_network()


@settings(max_examples=400)
@given(
    ids=st.lists(
        st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-1, VOCABULARY), max_size=100), min_size=1, max_size=4
    ),
    types=st.integers(-1, 2),
    output=st.sampled_from(Output),
)
def test_any_token_ids_give_an_answer_or_a_named_error(ids, types, output):
    batch = Batch.of(ids, [[types] * len(one) for one in ids])
    with Engine(NETWORK) as engine:
        try:
            expected = Oracle(NETWORK).run(batch, output)
        except TernaryBertError as error:
            with pytest.raises(type(error)):
                engine.run(batch, output)
        else:
            assert engine.run(batch, output).tobytes() == expected.tobytes()


def test_ten_thousand_random_sequences():
    """Ids and types out of range, empty and too long ones: answered if and only if the model has what they name."""
    rng = np.random.default_rng(0)
    sizes = NETWORK.sizes
    answered = 0
    with Engine(NETWORK, num_threads=2) as engine:
        for _ in range(10_000):
            ids = rng.integers(-1, VOCABULARY + 1, rng.choice([0, 1, 1, 2, 3, 20, sizes.max_tokens + 1]))
            ids = ids if rng.random() < 0.3 else ids.clip(0, VOCABULARY - 1)
            types = rng.integers(-1, 3, len(ids)) if rng.random() < 0.3 else np.zeros_like(ids)
            good = 0 < len(ids) <= sizes.max_tokens and (ids >= 0).all() and (ids < VOCABULARY).all()
            good = good and (types >= 0).all() and (types < sizes.types).all()
            try:
                found = engine.run(Batch.of([ids], [types]), Output.LOGITS)
            except InputError:
                assert not good
            else:
                assert good
                assert np.isfinite(found).all()
                answered += 1
    assert 1_000 < answered < 9_000


@pytest.mark.parametrize("clip", [None, 1.5])
@pytest.mark.parametrize("ranges", list(Range))
@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_attention_notices_what_is_not_finite(part, ranges, clip):
    """Clipping would hide it; so does the order of numbers, where only one of a token's is not finite."""
    network = make_network(hidden=24, heads=2, clip=clip, range=ranges, rows=True)
    for column in (0, 11, 23):
        linear = getattr(network.layers[0], part)
        scale, bias = linear.weight.scale.copy(), np.zeros(24, np.float32)
        scale[column], bias[column] = 3e38, 3e38
        broken = dataclasses.replace(linear, weight=dataclasses.replace(linear.weight, scale=scale), bias=bias)
        layer = dataclasses.replace(network.layers[0], **{part: broken})
        model = dataclasses.replace(network, layers=(layer, *network.layers[1:]))
        for lengths in ((3,), (1, 20)):
            batch = make_batch(model, lengths)
            with pytest.raises(NonFiniteError):
                Oracle(model).run(batch, Output.LOGITS)
            for kernel in KERNELS:
                with Engine(model, kernel=kernel, num_threads=1) as engine, pytest.raises(NonFiniteError):
                    engine.run(batch, Output.LOGITS)


def test_batches_that_do_not_fit_together():
    ints = np.array([1, 2, 3], np.int32)
    with Engine(NETWORK) as engine:
        for lengths, types in ((ints, None), (np.array([2], np.int32), None), (np.array([3], np.int32), ints[:2])):
            with pytest.raises(InputError, match="add up to"):
                engine.run(Batch(lengths, ints, types), Output.LOGITS)
        with pytest.raises(InputError, match="at least one token"):
            engine.run(Batch(np.array([3, 0], np.int32), ints, None), Output.LOGITS)
        with pytest.raises(NativeLibraryError, match="int64"):
            engine.run(Batch(np.array([3]), ints, None), Output.LOGITS)


def test_many_threads_use_one_engine():
    batches = [make_batch(NETWORK, (seed % 30 + 1, 5), seed) for seed in range(40)]
    expected = [Oracle(NETWORK).run(batch, Output.LOGITS).tobytes() for batch in batches]
    with Engine(NETWORK, num_threads=2) as engine, ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            found = list(pool.map(lambda batch: engine.run(batch, Output.LOGITS).tobytes(), batches))
            assert found == expected


def test_closing_waits_for_running_calls():
    """A call that is running keeps the model; whoever comes later is told that it is closed."""
    network = make_network(hidden=128, heads=4, intermediate=256, layers=4)
    batch = make_batch(network, [70] * 40)
    engine = Engine(network, num_threads=1)
    expected = engine.run(batch, Output.LOGITS).tobytes()
    begun, found = threading.Event(), []

    def call():
        begun.set()
        try:
            found.append(engine.run(batch, Output.LOGITS).tobytes())
        except InputError:  # came after the end
            found.append("closed")

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    begun.wait()
    while not found:  # at least one is through, the others are at it
        pass
    engine.close()
    for caller in callers:
        caller.join()
    assert set(found) - {"closed"} == {expected}
    with pytest.raises(InputError, match="closed"):
        engine.run(batch, Output.LOGITS)


def test_the_model_is_freed_at_once(monkeypatch):
    freed = []
    real = binding.library().tb_model_free
    monkeypatch.setattr(binding.library(), "tb_model_free", lambda handle: (freed.append(handle.value), real(handle)))
    for way in ("close", "with", "forget"):
        engine = Engine(NETWORK)
        if way == "close":
            engine.close()
            engine.close()
        elif way == "with":
            with engine:
                pass
        reference = weakref.ref(engine)
        del engine
        gc.collect()
        assert reference() is None
        assert len(freed) == ("close", "with", "forget").index(way) + 1


@pytest.mark.linux_only("os.fork is safe for a process with threads only there")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # the fork of threads is what is tested
def test_an_engine_survives_a_fork():
    batch = make_batch(NETWORK, (20, 7, 30))
    engine = Engine(NETWORK, num_threads=2)
    expected = engine.run(batch, Output.LOGITS).tobytes()
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if all(engine.run(batch, Output.LOGITS).tobytes() == expected for _ in range(20)) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert engine.run(batch, Output.LOGITS).tobytes() == expected


def test_kernels_by_name(monkeypatch):
    assert "portable" in KERNELS
    assert Engine(NETWORK).kernel == KERNELS[0]
    assert Engine(NETWORK, kernel="portable").kernel == "portable"
    monkeypatch.setenv("TERNARYBERT_KERNEL", "portable")
    assert Engine(NETWORK).kernel == "portable"
    assert Engine(NETWORK, kernel=KERNELS[0]).kernel == KERNELS[0]
    with pytest.raises(KernelError, match="abacus"):
        Engine(NETWORK, kernel="abacus")


def test_memory_is_told():
    small, large = Engine(make_network(layers=1)), Engine(make_network(layers=4))
    assert 0 < small.memory < large.memory


@pytest.mark.parametrize(("variable", "asked", "expected"), [("3", None, 3), ("3", 2, 2), (None, 5, 5)])
def test_threads(monkeypatch, variable, asked, expected):
    monkeypatch.delenv("TERNARYBERT_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("TERNARYBERT_THREADS", variable)
    assert thread_count(asked) == Engine(NETWORK, num_threads=asked).num_threads == expected


def test_threads_by_default_are_the_usable_cores(monkeypatch):
    monkeypatch.delenv("TERNARYBERT_THREADS", raising=False)
    if sys.platform == "linux":
        assert thread_count() == len(os.sched_getaffinity(0))
    assert thread_count() >= 1


@pytest.mark.parametrize(
    ("variable", "asked"), [("many", None), ("0", None), ("", None), (None, 0), (None, -1), (None, 2.5)]
)
def test_threads_that_are_no_number(monkeypatch, variable, asked):
    if variable is not None:
        monkeypatch.setenv("TERNARYBERT_THREADS", variable)
    with pytest.raises(OptionError, match="TERNARYBERT_THREADS" if asked is None else "num_threads"):
        thread_count(asked)


def test_a_library_with_another_header_is_noticed(monkeypatch):
    real = binding._config

    def longer(network, layers):
        config = real(network, layers)
        config.size += 8
        return config

    monkeypatch.setattr(binding, "_config", longer)
    with pytest.raises(TernaryBertError):
        Engine(NETWORK)


def test_a_status_without_a_message():
    with pytest.raises(NativeLibraryError, match="status 77"):
        check(77, CError())


def test_arrays_that_c_cannot_read_are_refused():
    wrong = dataclasses.replace(NETWORK, position=NETWORK.position.astype(np.float64))
    with pytest.raises(NativeLibraryError, match="float64"):
        Engine(wrong)
    assert CConfig.size.size == 4
