"""Tiny random students of every kind, and the folders they are packed into."""

import copy
import dataclasses

import torch
import transformers
from transformers import BertConfig, DistilBertConfig, ElectraConfig, RobertaConfig

import ternarybert.hf  # noqa: F401  (registers the format, for every test here)
from ternarybert.packed import write
from ternarybert.packed.hf_folder import repack
from ternarybert.recipe import LAYER, PRESETS, ROW, SAMPLE, TOKEN, Granularity, Recipe, WeightScheme
from ternarybert.student import make_student, quantized_layers
from ternarybert.training.export import packed_model

VOCABULARY = 34
# Sizes that fill no byte: neither 4 codes, nor 5, nor 8 of 3 bits.
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 18,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 22,
    "max_position_embeddings": 20,
    "pad_token_id": 0,
}
DISTILBERT_SIZES = {
    "vocab_size": VOCABULARY,
    "dim": 18,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 22,
    "max_position_embeddings": 20,
}
CONFIGS = {
    "Bert": BertConfig(**SIZES),
    "Roberta": RobertaConfig(**SIZES),
    "Electra": ElectraConfig(**SIZES, embedding_size=14),
    "DistilBert": DistilBertConfig(**DISTILBERT_SIZES),
}


def with_weights(recipe, **fields):
    """The recipe with both weight schemes changed."""
    return dataclasses.replace(
        recipe,
        weight=dataclasses.replace(recipe.weight, **fields),
        embedding=dataclasses.replace(recipe.embedding, **fields),
    )


def with_activations(recipe, granularity):
    return dataclasses.replace(recipe, activation=dataclasses.replace(recipe.activation, granularity=granularity))


PAPER = Recipe()
LAQ3 = PAPER.with_bits("3-3-8")
RECIPES = {
    "paper": PAPER,
    "reference": PRESETS["reference"],
    "default": PRESETS["default"],
    "2-2-32": PAPER.with_bits("2-2-32"),
    "2-2-4": PAPER.with_bits("2-2-4"),
    "3-3-8 linear": LAQ3,
    "3-3-8 log": with_weights(LAQ3, levels="log"),
    "4-4-8 log": with_weights(PAPER.with_bits("4-4-8"), levels="log"),
    "8-8-8": PAPER.with_bits("8-8-8"),
    "32-2-8": PAPER.with_bits("32-2-8"),
    "2-32-8": PAPER.with_bits("2-32-8"),
    "exact": with_weights(PAPER, exact=True),
    "lat": with_weights(PAPER, method="lat"),
    "lat exact by rows": with_weights(PAPER, method="lat", exact=True, granularity=ROW),
    "layer": with_weights(PAPER, granularity=LAYER),
    "row": with_weights(PAPER, granularity=ROW),
    "group": with_weights(PAPER, granularity=Granularity.group(2)),
    "sample": with_activations(PAPER, SAMPLE),
    "token": with_activations(PAPER, TOKEN),
    "float pooler": dataclasses.replace(PAPER, pooler=False),
    "different weights": dataclasses.replace(LAQ3.with_bits("3-2-8"), embedding=WeightScheme("lat", ROW)),
}


def random_student(recipe=PAPER, head="ForSequenceClassification", family="Bert", seed=0):
    """A student in evaluation; LAT and LAQ find second moments, as they do in the middle of training."""
    torch.manual_seed(seed)
    labels = 2 if head == "ForQuestionAnswering" else 3  # where an answer begins, and where it ends
    config = copy.deepcopy(CONFIGS[family])
    config.architectures, config.num_labels = [f"{family}{head}"], labels
    model = getattr(transformers, f"{family}{head}")(config)
    for parameter in model.parameters():  # not as small as freshly initialized: logits should differ
        torch.nn.init.normal_(parameter, std=0.3)
    student = make_student(model, recipe).eval()
    for _, layer in quantized_layers(student):
        v = torch.rand_like(layer.weight) ** 4
        layer.second_moment = lambda v=v: v
    return student


def write_student(folder, student, recipe=PAPER, *, packing="plain", half=False):
    write(folder, repack_ternary(packed_model(student, recipe), packing), half=half)
    return folder


def repack_ternary(model, packing):
    """What is ternary, packed so; at other bits there is only one way."""
    return repack(model, packing) if "2" in model.bits.split("-")[:2] else model


def batch(seed=1):
    """Three sequences of different lengths."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, VOCABULARY, (3, 11), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    mask[2, 9:] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


@torch.no_grad()
def outputs(model, **inputs):
    """Whatever the head gives, as one tensor."""
    result = model(**(inputs or batch()))
    names = [name for name in ("logits", "start_logits", "end_logits", "last_hidden_state") if name in result]
    return torch.cat([result[name].flatten() for name in names])
