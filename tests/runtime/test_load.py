"""What becomes a network, and what is refused before it computes something wrong."""

import dataclasses

import numpy as np
import pytest

from ternarybert.errors import PackedConfigError, UnsupportedModelError
from ternarybert.packed import PackedTensor, read, write
from ternarybert.recipe import PRESETS
from ternarybert.runtime.load import check_computation, network_of
from ternarybert.runtime.network import Function, Range
from tests.packed.models import TINY, random_model

RECIPE = PRESETS["default"].to_dict()
CONFIG = TINY | {"hidden_act": "gelu"}


def model(recipe=RECIPE, tensors=None, **config):
    made = random_model(CONFIG | config)
    return dataclasses.replace(made, recipe=recipe, tensors=made.tensors | (tensors or {}))


def without(made, *names):
    return dataclasses.replace(made, tensors={k: v for k, v in made.tensors.items() if k not in names})


def test_a_bert():
    network = network_of(model())
    sizes = network.sizes
    assert (sizes.vocabulary, sizes.hidden, sizes.heads, sizes.intermediate, sizes.layers) == (11, 6, 2, 10, 2)
    assert (sizes.positions, sizes.first_position, sizes.types, sizes.dense, sizes.head) == (4, 0, 2, 6, 3)
    assert sizes.max_tokens == 4
    assert network.range == Range.TOKEN
    assert network.dense_quantized
    assert network.dense_function == Function.TANH
    assert isinstance(network.dense.weight, PackedTensor)


@pytest.mark.parametrize(("preset", "range"), [("paper", Range.SEQUENCE), ("default", Range.TOKEN)])
def test_ranges_of_a_batch_become_ranges_of_a_sequence(preset, range):
    assert network_of(model(PRESETS[preset].to_dict())).range == range


def test_the_reference_recipe():
    network = network_of(model(PRESETS["reference"].to_dict()))
    assert network.symmetric
    assert network.clip == 2.5


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("gelu", Function.GELU),
        ("gelu_new", Function.GELU_TANH),
        ("gelu_pytorch_tanh", Function.GELU_TANH),
        ("relu", Function.RELU),
    ],
)
def test_activation_functions(name, function):
    assert network_of(model(hidden_act=name)).function == function


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "albert"}, "type 'albert'"),
        ({"model_type": None}, "type 'None'"),
        ({"hidden_act": "silu"}, "'silu'"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"is_decoder": True}, "is_decoder"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
    ],
)
def test_other_computations_are_refused_by_name(config, reason):
    with pytest.raises(UnsupportedModelError, match=reason):
        network_of(model(**config))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"num_attention_heads": 4}, "4 attention heads"),
        ({"num_attention_heads": 0}, "num_attention_heads = 0"),
        ({"architectures": None}, "architectures = None"),
        ({"architectures": []}, r"architectures = \[\]"),
        ({"architectures": ["BertForQuestionAnswering"]}, r"qa_outputs\.weight"),
    ],
)
def test_configurations_that_do_not_fit(config, reason):
    with pytest.raises(PackedConfigError, match=reason):
        network_of(model(**config))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("bert.encoder.layer.1.output.LayerNorm.weight", (7,)),
        ("bert.embeddings.position_embeddings.weight", (4, 5)),
        ("bert.encoder.layer.0.intermediate.dense.bias", (6,)),
        ("classifier.weight", (3, 7)),
        ("classifier.bias", (2,)),
    ],
)
def test_tensors_of_another_shape(name, shape):
    with pytest.raises(PackedConfigError, match=name):
        network_of(model(tensors={name: np.zeros(shape, np.float32)}))


def test_a_missing_tensor():
    with pytest.raises(PackedConfigError, match=r"bert\.embeddings\.LayerNorm\.bias"):
        network_of(without(model(), "bert.embeddings.LayerNorm.bias"))


def test_a_recipe_that_says_nothing():
    with pytest.raises(PackedConfigError, match="recipe"):
        network_of(model({}))


def test_a_head_that_is_unknown_leaves_an_encoder():
    network = network_of(model(architectures=["BertForMaskedLM"]))
    assert network.head is None
    assert network.sizes.dense == 6


def test_half_precision_is_read_as_single(tmp_path):
    write(tmp_path / "p", model(), half=True)
    network = network_of(read(tmp_path / "p"))
    assert network.position.dtype == network.head.weight.dtype == np.float32


def test_odd_addresses_are_moved(tmp_path):
    """Another program may have written the tensors in any order; C reads floats at whole addresses only."""

    def odd(array):
        memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
        memory[:] = np.frombuffer(array.tobytes(), np.uint8)
        return memory.view(array.dtype).reshape(array.shape)

    made = model()
    moved = {
        name: dataclasses.replace(one, scale=odd(one.scale)) if isinstance(one, PackedTensor) else odd(one)
        for name, one in made.tensors.items()
    }
    network = network_of(dataclasses.replace(made, tensors=moved))
    assert network.word.scale.flags.aligned
    assert network.position.flags.aligned
    assert network.layers[0].up.bias.flags.aligned
    assert network.position.tobytes() == network_of(made).position.tobytes()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hidden_act": "silu"}, "'silu'"),
        ({"embedding_size": 16}, "16 .* 32"),
        ({"is_decoder": True}, "is_decoder"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
    ],
)
def test_what_cannot_run_is_known_by_its_config(change, reason):
    config = {"model_type": "bert", "hidden_act": "gelu", "hidden_size": 32}
    check_computation(config)
    with pytest.raises(UnsupportedModelError, match=reason):
        check_computation(config | change)
