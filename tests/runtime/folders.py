"""Students of every family and head, packed with the tokenizer of tests/tiny.py."""

import json

import torch
import transformers

from ternarybert.packed import write
from ternarybert.recipe import SAMPLE
from ternarybert.student import make_student, quantized_layers
from ternarybert.training.export import packed_model
from tests import tiny
from tests.hf.students import RECIPES, with_activations

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64}
ROBERTA = SIZES | {"max_position_embeddings": 66, "pad_token_id": 1, "type_vocab_size": 1}
FAMILIES = {
    "Bert": SIZES,
    "Roberta": ROBERTA,
    "XLMRoberta": ROBERTA,
    "Camembert": ROBERTA,
    "Electra": SIZES | {"embedding_size": 32},
    "DistilBert": DISTILBERT,
}
HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "Model")


def recipe_of(name):
    """A recipe of tests/hf/students.py; one range for the batch becomes one for the sequence, as the runtime has it."""
    recipe = RECIPES[name]
    return with_activations(recipe, SAMPLE) if recipe.activation.granularity.kind == "tensor" else recipe


def student(head="ForSequenceClassification", family="Bert", recipe="default", seed=0, **changes):
    torch.manual_seed(seed)
    labels = {"num_labels": 2 if head == "ForQuestionAnswering" else 3} if "id2label" not in changes else {}
    config = getattr(transformers, f"{family}Config")(
        **FAMILIES[family] | {"vocab_size": len(tiny.tokenizer())} | labels | changes
    )
    model = getattr(transformers, f"{family}{head}")(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    made = make_student(model, recipe_of(recipe)).eval()
    for _, layer in quantized_layers(made):
        v = torch.rand_like(layer.weight) ** 4
        layer.second_moment = lambda v=v: v
    return made


def save_student(folder, head, family="Bert", recipe="default", *, metrics=None, **changes):
    """A packed folder, complete with tokenizer."""
    content = packed_model(student(head, family, recipe, **changes), recipe_of(recipe), metrics)
    write(folder, content)
    save_tokenizer(folder, types=family in ("Bert", "Electra"))
    return folder


def save_tokenizer(folder, *, types):
    """A general tokenizer gives no types in transformers unless its file says so."""
    tiny.tokenizer().save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    names = ["input_ids", "token_type_ids", "attention_mask"] if types else ["input_ids", "attention_mask"]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_input_names": names}))
