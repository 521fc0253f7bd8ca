"""The table of tensors is that of transformers: nothing less, so that a loss is noticed, and nothing more."""

import copy

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from ternarybert.errors import PackedConfigError
from ternarybert.packed import read, write
from ternarybert.packed.names import check_fit, is_quantized
from ternarybert.packed.parts import FAMILIES, check_complete

from .damage import drop_tensor
from .models import TINY, bert_shapes, random_model

SIZES = {
    "vocab_size": 13,
    "hidden_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 10,
    "max_position_embeddings": 9,
    "num_labels": 3,
}
CONFIGS = {
    "bert": transformers.BertConfig(**SIZES),
    "roberta": transformers.RobertaConfig(**SIZES),
    "xlm-roberta": transformers.XLMRobertaConfig(**SIZES),
    "camembert": transformers.CamembertConfig(**SIZES),
    "electra": transformers.ElectraConfig(**SIZES, embedding_size=4),
    "distilbert": transformers.DistilBertConfig(
        vocab_size=13, dim=6, n_layers=2, n_heads=2, hidden_dim=10, max_position_embeddings=9, num_labels=3
    ),
}
# Their summary has these or not, as the configuration says.
OPTIONAL = {"sequence_summary.summary.weight", "sequence_summary.summary.bias"}


def is_model(name):
    found = getattr(transformers, name)
    return isinstance(found, type) and issubclass(found, PreTrainedModel) and not name.endswith("PreTrainedModel")


def classes(kind):
    """Whatever classes transformers has for a family."""
    prefix = FAMILIES[kind].class_prefix
    starts = tuple(prefix + part for part in ("For", "Model", "LMHead"))
    return [name for name in dir(transformers) if name.startswith(starts) and is_model(name)]


EVERY = [(kind, name) for kind in FAMILIES for name in classes(kind)]
KNOWN = [(kind, f"{family.class_prefix}{suffix}") for kind, family in FAMILIES.items() for suffix in family.heads]


def described(kind, name, **changes):
    """The configuration of a model of this class, and the shapes of its tensors; no weight is made."""
    config = copy.deepcopy(CONFIGS[kind])
    config.architectures = [name]
    for key, value in changes.items():
        setattr(config, key, value)
    if name.endswith("ForQuestionAnswering"):
        config.num_labels = 2  # where an answer begins, and where it ends
    with torch.device("meta"):
        model = getattr(transformers, name)(config)
    return config.to_dict(), {key: tuple(value.shape) for key, value in model.state_dict().items()}


def check(config, shapes):
    check_fit(config, shapes)
    check_complete(config, shapes)


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_class_of_transformers_is_complete(kind, name):
    config, shapes = described(kind, name)
    check(config, shapes)
    check(config | {"architectures": None}, shapes)


@pytest.mark.parametrize(("kind", "name"), KNOWN)
def test_every_tensor_that_is_missing_is_named(kind, name):
    config, shapes = described(kind, name)
    optional = OPTIONAL | ({key for key in shapes if "pooler" in key} if name.endswith("Model") else set())
    for lost in shapes.keys() - optional:
        if not is_quantized(lost):  # the matrices of the paper are counted by `check_fit`
            rest = {key: shape for key, shape in shapes.items() if key != lost}
            with pytest.raises(PackedConfigError, match=f"the tensor '{lost}' is missing; {name} has it"):
                check(config, rest)


@pytest.mark.parametrize(("kind", "name"), KNOWN)
def test_every_tensor_of_another_shape_is_named(kind, name):
    config, shapes = described(kind, name)
    for wrong in shapes.keys() - OPTIONAL:
        *most, last = shapes[wrong]
        for shape in ((*most, last + 1), (*most, last, 1), ()):
            with pytest.raises(PackedConfigError, match=f"tensor '{wrong}' is "):
                check(config, shapes | {wrong: shape})


def test_the_encoder_may_go_without_its_pooler_and_its_prefix():
    _, shapes = described("bert", "BertModel")
    bare = {name: shape for name, shape in shapes.items() if "pooler" not in name}
    config, named = described("bert", "BertForTokenClassification")
    check(config | {"architectures": ["BertModel"]}, bare)
    check(config | {"architectures": ["BertModel"]}, {f"bert.{name}": shape for name, shape in bare.items()})
    check(config, bare | {name: shape for name, shape in named.items() if name.startswith("classifier")})


def test_a_pooler_is_needed_where_the_head_uses_it_and_never_without_its_bias():
    config, shapes = described("bert", "BertForSequenceClassification")
    without = {name: shape for name, shape in shapes.items() if "pooler" not in name}
    with pytest.raises(PackedConfigError, match=r"'bert.pooler.dense.weight' is missing; BertForSequence"):
        check(config, without)
    config, shapes = described("roberta", "RobertaModel")
    del shapes["pooler.dense.bias"]
    with pytest.raises(PackedConfigError, match=r"'pooler.dense.bias' is missing; RobertaModel has it"):
        check(config, shapes)


def test_electra_projects_narrow_embeddings_only():
    check(*described("electra", "ElectraModel", embedding_size=6))


@pytest.mark.parametrize(
    "named", [None, [], ["BertForSomething"], ["RobertaModel"], ["BertModel", "BertModel"], [3], 3]
)
def test_a_class_that_is_not_known_still_has_an_encoder(named):
    shapes = {name: shape for name, shape in bert_shapes(TINY).items() if not name.startswith("classifier")}
    config = TINY | {"architectures": named}
    check(config, shapes)
    del shapes["bert.encoder.layer.1.output.LayerNorm.bias"]
    with pytest.raises(PackedConfigError, match=r"output.LayerNorm.bias' is missing; a model of type 'bert' has it"):
        check(config, shapes)


@pytest.mark.parametrize("kind", [None, "ernie", 3, ["bert"]])
def test_of_a_family_that_is_not_known_only_the_matrices_count(kind):
    matrices = {name: shape for name, shape in bert_shapes(TINY).items() if is_quantized(name)}
    check(TINY | {"model_type": kind}, matrices)


@pytest.mark.parametrize(
    ("labels", "fits"),
    [
        ({}, True),
        ({"num_labels": 3}, True),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, True),
        ({"num_labels": 3, "id2label": {"0": "a"}}, True),  # transformers then makes labels up
        ({"num_labels": 2}, False),
        ({"id2label": {"0": "a", "1": "b"}}, False),
    ],
)
def test_as_many_labels_as_the_configuration_names(labels, fits):
    config, shapes = TINY | labels, bert_shapes(TINY)
    if fits:
        check(config, shapes)
    else:
        with pytest.raises(
            PackedConfigError, match=r"'classifier.weight' is \(3, 6\), but config.json makes it \(2, 6\)"
        ):
            check(config, shapes)


@pytest.mark.parametrize("lost", ["bert.embeddings.LayerNorm.weight", "bert.pooler.dense.bias", "classifier.bias"])
def test_a_folder_that_lacks_a_tensor_is_not_read(folder, lost):
    drop_tensor(folder, lost)
    with pytest.raises(PackedConfigError, match=f"{folder}: the tensor '{lost}' is missing; BertFor"):
        read(folder)


def test_a_model_that_lacks_a_tensor_is_not_written(tmp_path):
    model = random_model()
    del model.tensors["bert.embeddings.position_embeddings.weight"]
    with pytest.raises(PackedConfigError, match=r"position_embeddings.weight' is missing"):
        write(tmp_path / "p", model)
    assert not (tmp_path / "p").exists()
