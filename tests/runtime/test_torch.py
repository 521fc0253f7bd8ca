"""A packed folder runs as its student evaluates in torch: in every family, with every head and recipe."""

from functools import lru_cache

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

import ternarybert
from ternarybert.packed import read
from ternarybert.recipe import PRESETS
from ternarybert.runtime.engine import Engine
from ternarybert.runtime.load import network_of
from ternarybert.runtime.network import Batch, Output
from ternarybert.runtime.oracle import Oracle
from ternarybert.student import make_student
from ternarybert.training.export import packed_model

from .folders import FAMILIES, HEADS, recipe_of

RECIPE_NAMES = [
    "default",
    "paper",
    "sample",
    "reference",
    "2-2-4",
    "2-2-32",
    "3-3-8 linear",
    "3-3-8 log",
    "4-4-8 log",
    "8-8-8",
    "2-32-8",
    "32-2-8",
    "row",
    "lat",
    "float pooler",
]
# The head is torch's own matrix product; everything before it is equal to the bit.
CLOSE = 1e-5


def sequences(vocabulary, lengths=(9, 2, 13), seed=1):
    rng = np.random.default_rng(seed)
    return [rng.integers(5, vocabulary, n) for n in lengths]


@lru_cache(1)  # for all sequences of a test
def load_torch(folder):
    return ternarybert.load_torch(folder).eval()


def runs_like_torch(folder, sequence, output):
    """What torch says about one sequence, as rows of an output."""
    model = load_torch(folder)
    with torch.no_grad():
        result = model(input_ids=torch.from_numpy(sequence)[None])
    if output == Output.HIDDEN:
        return result.last_hidden_state[0].numpy()
    if output == Output.DENSE:
        return result.pooler_output.numpy()
    if "start_logits" in result:
        return torch.stack([result.start_logits[0], result.end_logits[0]], -1).numpy()
    return result.logits.reshape(-1, result.logits.shape[-1]).numpy()


def output_of(head):
    return {"ForSequenceClassification": Output.LOGITS, "Model": Output.HIDDEN}.get(head, Output.TOKEN_LOGITS)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_and_head(folders, family, head):
    check(folders(head, family), output_of(head))


@pytest.mark.parametrize("recipe", RECIPE_NAMES)
def test_every_recipe(folders, recipe):
    check(folders(recipe=recipe), Output.LOGITS)


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "width"), [(6, 384), (12, 384), (12, 768)])
def test_models_of_the_usual_sizes(layers, width):
    """MiniLM's, e5-small's and BERT-base's, with random weights; runs/equality.py has real ones and real sentences."""
    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=layers, hidden_size=width, intermediate_size=4 * width)
    model = BertForSequenceClassification(config)
    torch.nn.init.normal_(model.classifier.weight)
    student = make_student(model, PRESETS["default"]).eval()
    given = sequences(config.vocab_size, [1, 2, 128, *np.random.default_rng(0).integers(3, 60, 17)])
    with Engine(network_of(packed_model(student, PRESETS["default"]))) as engine:
        ours = engine.run(Batch.of(given), Output.LOGITS)
    with torch.no_grad():
        expected = np.concatenate([student(input_ids=torch.from_numpy(one)[None]).logits.numpy() for one in given])
    assert expected.std(0).min() > 0.1  # the sentences have different answers
    np.testing.assert_allclose(ours, expected, rtol=0, atol=CLOSE)


def check(folder, output):
    network = network_of(read(folder))
    given = sequences(network.sizes.vocabulary)
    ours = Oracle(network).run(Batch.of(given), output)
    expected = np.concatenate([runs_like_torch(folder, one, output) for one in given])
    np.testing.assert_allclose(ours, expected, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("family", ["Bert", "Roberta"])
def test_the_pooler_of_an_encoder(folders, family):
    check(folders("Model", family), Output.DENSE)


@pytest.mark.parametrize("recipe", ["default", "sample", "8-8-8"])
def test_hidden_states_are_equal_to_the_bit(folders, recipe):
    folder = folders("Model", recipe=recipe)
    network = network_of(read(folder))
    for one in sequences(network.sizes.vocabulary, range(1, 20)):
        ours = Oracle(network).run(Batch.of([one]), Output.HIDDEN)
        assert ours.tobytes() == runs_like_torch(folder, one, Output.HIDDEN).tobytes()


def test_padding_changes_nothing(folders):
    """The student masks padding; the runtime never sees any."""
    folder = folders("Model")
    given = sequences(60, (4, 11, 7))
    ids = torch.zeros(3, 11, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, one in enumerate(given):
        ids[row, : len(one)], mask[row, : len(one)] = torch.from_numpy(one), 1
    with torch.no_grad():
        padded = ternarybert.load_torch(folder).eval()(input_ids=ids, attention_mask=mask).last_hidden_state
    ours = Oracle(network_of(read(folder))).run(Batch.of(given), Output.HIDDEN)
    assert ours.tobytes() == padded[mask.bool()].numpy().tobytes()


def test_token_types_reach_the_model(folders):
    folder = folders("Model")
    types = np.array([0, 0, 1, 1])
    with torch.no_grad():
        expected = ternarybert.load_torch(folder).eval()(
            input_ids=torch.tensor([[7, 8, 9, 10]]), token_type_ids=torch.from_numpy(types)[None]
        )
    ours = Oracle(network_of(read(folder))).run(Batch.of([[7, 8, 9, 10]], [types]), Output.HIDDEN)
    assert ours.tobytes() == expected.last_hidden_state[0].numpy().tobytes()


def test_the_recipes_are_what_they_say():
    assert {str(recipe_of(name).bits) for name in RECIPE_NAMES} >= {"2-2-8", "2-2-4", "2-2-32", "8-8-8", "32-2-8"}
