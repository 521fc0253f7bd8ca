"""The oracle against a direct computation in float64, and what makes its answers trustworthy."""

import dataclasses

import numpy as np
import pytest

from ternarybert.errors import InputError, NonFiniteError, UnsupportedModelError
from ternarybert.runtime.network import Batch, Function, Linear, Norm, Output, Range
from ternarybert.runtime.oracle import Oracle

from . import direct
from .networks import VOCABULARY, make_batch, make_network, split

LENGTHS = (5, 1, 9)
NETWORKS = {
    "token": {},
    "sequence": {"range": Range.SEQUENCE},
    "symmetric": {"symmetric": True},
    "clipped": {"symmetric": True, "clip": 2.5, "range": Range.SEQUENCE},
    "clipped min-max": {"clip": 1.5},
    "4-bit activations": {"activation_bits": 4},
    "float activations": {"activation_bits": 32},
    "float activations by rows": {"activation_bits": 32, "rows": True, "weight_bits": 3},
    "3 bits": {"weight_bits": 3, "word_bits": 3, "rows": True},
    "log levels": {"weight_bits": 4, "levels": "log"},
    "8 bits": {"weight_bits": 8, "word_bits": 8},
    "dense packing": {"packing": "dense"},
    "float weights": {"weight_bits": 32},
    "float embedding": {"word_bits": 32},
    "roberta": {"first_position": 2, "types": 1, "dense_quantized": False},
    "distilbert": {"types": 0, "dense_function": Function.RELU, "dense_quantized": False},
    "electra": {"dense_function": Function.GELU, "dense_quantized": False},
    "tanh gelu, no biases": {"function": Function.GELU_TANH, "bias": False},
    "relu": {"function": Function.RELU},
    "everything in the head": {"dense": False},
}
# Float32 against float64. One part in ten million may tip an activation to its next level in one and not in the other,
# which happens in one of eight networks and is then seen in the second digit. A mistake would be seen in all of them.
CLOSE, SEEDS, ENOUGH = 2e-5, 5, 2


def differences(network, seed):
    """How far every output is off."""
    batch = make_batch(network, LENGTHS, seed)
    hidden = [direct.hidden_states(network, one.ids, one.types) for one in split(batch)]
    for output in Output:
        if output != Output.DENSE or network.dense is not None:
            expected = np.concatenate([direct.output_of(network, x, output) for x in hidden])
            ours = Oracle(network).run(batch, output)
            assert ours.shape == expected.shape
            yield np.abs(ours - expected).max() / max(1, np.abs(expected).max())


@pytest.mark.parametrize("name", NETWORKS)
def test_against_float64(name):
    worst = [max(differences(make_network(seed, **NETWORKS[name]), seed)) for seed in range(SEEDS)]
    assert sorted(worst)[ENOUGH - 1] < CLOSE


@pytest.mark.parametrize("output", Output)
def test_an_answer_does_not_depend_on_the_batch(output):
    network = make_network()
    batch = make_batch(network, (7, 3, 3, 12))
    alone = [Oracle(network).run(one, output) for one in split(batch)]
    assert Oracle(network).run(batch, output).tobytes() == np.concatenate(alone).tobytes()


def test_types_that_are_not_given_are_zero():
    network = make_network()
    ids = [np.arange(5, dtype=np.int32)]
    with_types = Oracle(network).run(Batch.of(ids, [np.zeros(5, np.int32)]), Output.LOGITS)
    assert Oracle(network).run(Batch.of(ids), Output.LOGITS).tobytes() == with_types.tobytes()


@pytest.mark.parametrize(
    ("ids", "types", "reason"),
    [
        ([[0, VOCABULARY]], None, "token id"),
        ([[1], [2, -1]], None, "sequence 1 has a token id"),
        ([[1, 2]], [[0, 2]], "token type"),
        ([[1, 2]], [[-1, 0]], "token type"),
        ([list(range(20)) * 5], None, "100 tokens.* 80"),
        ([[]], None, "at least one token"),
        ([[1], []], None, "at least one token"),
        ([[1, 2]], [[0]], "add up to 2"),
        ([[1.5]], None, "integers"),
        ([[2**40]], None, "32 bits"),
        ([], None, "at least one sequence"),
    ],
)
def test_bad_inputs_are_named(ids, types, reason):
    with pytest.raises(InputError, match=reason):
        Oracle(make_network()).run(Batch.of(ids, types), Output.LOGITS)


def test_outputs_that_the_model_does_not_have():
    network = make_network(dense=False, head=0)
    batch = make_batch(network, (3,))
    for output in (Output.DENSE, Output.LOGITS, Output.TOKEN_LOGITS):
        with pytest.raises(UnsupportedModelError, match="has no"):
            Oracle(network).run(batch, output)
    assert Oracle(network).run(batch, Output.FIRST).shape == (1, 24)


def test_infinite_activations_are_noticed():
    network = make_network()
    huge = Linear(np.full((3, 24), 3e38, np.float32), network.head.bias)
    with pytest.raises(NonFiniteError):
        Oracle(dataclasses.replace(network, head=huge)).run(make_batch(network, (3,)), Output.LOGITS)
    norm = Norm(network.embedding_norm.weight, np.full(24, 9, np.float32))
    huge = Linear(np.full((40, 24), 3e38, np.float32), None)
    wide = dataclasses.replace(network.layers[0], up=huge, attention_norm=norm)
    broken = dataclasses.replace(network, layers=(wide, network.layers[1]))
    with pytest.raises(NonFiniteError):
        Oracle(broken).run(make_batch(network, (3,)), Output.LOGITS)
