"""Small models to write, read and damage."""

import numpy as np

from ternarybert.families import is_quantized, is_word_embedding
from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.packed.codec import Coding

TINY = {
    "architectures": ["BertForSequenceClassification"],
    "hidden_size": 6,
    "intermediate_size": 10,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 4,
    "model_type": "bert",
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 11,
}
BASE = TINY | {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_hidden_layers": 12,
    "vocab_size": 30522,
}


def bert_shapes(config, prefix="bert.", labels=3):
    """Names and shapes of a BERT with a classifier, as Hugging Face calls them."""
    hidden, ffn, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    shapes = {
        "embeddings.word_embeddings.weight": (vocabulary, hidden),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."
        for name, (rows, columns) in {
            "attention.self.query": (hidden, hidden),
            "attention.self.key": (hidden, hidden),
            "attention.self.value": (hidden, hidden),
            "attention.output.dense": (hidden, hidden),
            "intermediate.dense": (ffn, hidden),
            "output.dense": (hidden, ffn),
        }.items():
            shapes |= {f"{at}{name}.weight": (rows, columns), f"{at}{name}.bias": (rows,)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{at}{name}.weight": (hidden,), f"{at}{name}.bias": (hidden,)}
    shapes |= {"pooler.dense.weight": (hidden, hidden), "pooler.dense.bias": (hidden,)}
    named = {prefix + name: shape for name, shape in shapes.items()}
    return named | {"classifier.weight": (labels, hidden), "classifier.bias": (labels,)}


def random_model(config=TINY, bits="2-2-8", *, levels="linear", packing="plain", seed=0):
    rng = np.random.default_rng(seed)
    w, e, _ = (int(part) for part in bits.split("-"))
    tensors = {}
    for name, shape in bert_shapes(config).items():
        if is_quantized(name):
            m = e if is_word_embedding(name) else w
            alphabet = Coding(m, levels, packing).alphabet
            codes = alphabet[rng.integers(0, len(alphabet), shape, dtype=np.uint8)]
            scale = rng.random(shape[0] if is_word_embedding(name) else 1, dtype=np.float32)
            tensors[name] = PackedTensor.pack(codes, scale, bits=m, levels=levels, packing=packing)
        else:
            tensors[name] = rng.standard_normal(shape, dtype=np.float32)
    return PackedModel(dict(config), tensors, bits, {"method": "twn"}, {"accuracy": 0.5})


def assert_same(a, b):
    """Everything about two models is equal, bit for bit."""
    assert (a.config, a.bits, a.recipe, a.metrics) == (b.config, b.bits, b.recipe, b.metrics)
    assert a.tensors.keys() == b.tensors.keys()
    for name, x in a.tensors.items():
        y = b.tensors[name]
        assert type(x) is type(y), name
        if isinstance(x, PackedTensor):
            assert (x.coding, x.shape, x.granularity) == (y.coding, y.shape, y.granularity), name
            assert x.codes.tobytes() == y.codes.tobytes(), name
            assert x.scale.tobytes() == y.scale.tobytes(), name
        else:
            assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes()), name


def golden_model():
    """A model made of formulas only, so that no random generator has a say in its bytes."""
    config = TINY | {"max_position_embeddings": 2, "num_hidden_layers": 1, "vocab_size": 5}
    tensors = {}
    for position, (name, shape) in enumerate(sorted(bert_shapes(config).items())):
        ramp = np.arange(np.prod(shape)).reshape(shape)
        if is_quantized(name):
            codes = ((ramp * ramp + position) % 3 - 1).astype(np.int8)
            rows = shape[0] if is_word_embedding(name) else 1
            tensors[name] = PackedTensor.pack(codes, np.arange(rows) / 4 + 0.125, bits=2)
        else:
            tensors[name] = (ramp / 8 - position).astype(np.float32)
    recipe = {"activations": {"granularity": "token"}, "method": "twn"}
    return PackedModel(config, tensors, "2-2-8", recipe, {"mnli": {"accuracy": 0.84}})
