"""What happens inside teacher and student on some texts: hidden representations and attention, layer by layer.

A student with fewer layers is compared with the teacher's layers that it learned from. Attention is the softmax of the
scores; what the student then rounds to 8 bits could not be told from it in a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel

import ternarybert
from ternarybert.errors import UnsupportedModelError
from ternarybert.student import expose_scores
from ternarybert.training.losses import layer_map
from ternarybert.training.models import check_tokenizer, explain_load_errors, load_tokenizer

Array = npt.NDArray[np.float32]
Text = tuple[str, ...]  # a text or a pair


@dataclass(frozen=True, eq=False)
class Attention:
    """One text: its tokens, and the attention (layers, heads, queries, keys) of both."""

    tokens: tuple[str, ...]
    teacher: Array
    student: Array


@dataclass(frozen=True, eq=False)
class Inside:
    """Everything that the figures show; the first of the layers is the embedding's output."""

    layers: tuple[int, ...]  # of the teacher, one for each of the student's
    teacher: tuple[Array, ...]  # hidden values of all tokens, by layer
    student: tuple[Array, ...]
    attention: tuple[Attention, ...]


def look_inside(student: Path, teacher: Path, texts: Sequence[Text]) -> Inside:
    """Run both models on the texts, one by one: then there is no padding to leave out."""
    pupil = ternarybert.load_torch(student).base_model.eval()
    master = _load_teacher(teacher)
    layers = _layers(pupil, master, student, teacher)
    tokenizer = load_tokenizer(str(student))
    check_tokenizer(tokenizer, pupil, master)
    longest = min(tokenizer.model_max_length, pupil.config.max_position_embeddings - 2)  # RoBERTa loses two
    ours: list[list[Array]] = [[] for _ in layers]
    theirs: list[list[Array]] = [[] for _ in layers]
    attention = []
    for text in texts:
        batch = tokenizer(*text, return_tensors="pt", truncation=True, max_length=longest)
        found, wanted = _run(pupil, batch), _run(master, batch)
        for place, layer in enumerate(layers):
            ours[place].append(found.hidden_states[place].numpy().reshape(-1))
            theirs[place].append(wanted.hidden_states[layer].numpy().reshape(-1))
        tokens = tuple(tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist()))
        learned_from = [wanted.attentions[layer - 1] for layer in layers[1:]]
        attention.append(Attention(tokens, _probabilities(learned_from), _probabilities(found.attentions)))
    joined = [tuple(np.concatenate(values) for values in side) for side in (theirs, ours)]
    return Inside(tuple(layers), joined[0], joined[1], tuple(attention))


def _load_teacher(folder: Path) -> PreTrainedModel:
    """The encoder of a plain folder, in float32 whatever its files hold; weights that it lacks are not made up."""
    with explain_load_errors(str(folder)):
        model, found = AutoModel.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    if lacking := sorted(name for name in found["missing_keys"] if not name.startswith("pooler.")):
        raise UnsupportedModelError(f"{folder} lacks {len(lacking)} weights of its encoder, such as {lacking[0]}")
    return expose_scores(model).eval()


def _layers(pupil: PreTrainedModel, master: PreTrainedModel, student: Path, teacher: Path) -> list[int]:
    """The teacher's layer for each of the student's; an error if it cannot have been its teacher."""
    ours, theirs = pupil.config, master.config
    for what in ("vocab_size", "num_attention_heads"):
        if getattr(ours, what) != getattr(theirs, what):
            raise UnsupportedModelError(
                f"{teacher} is not the teacher of {student}: their {what} are {getattr(theirs, what)} and "
                f"{getattr(ours, what)}"
            )
    if theirs.num_hidden_layers % ours.num_hidden_layers:
        raise UnsupportedModelError(
            f"{teacher} is not the teacher of {student}: its {theirs.num_hidden_layers} layers do not spread evenly "
            f"over {ours.num_hidden_layers}"
        )
    return [0, *layer_map(ours.num_hidden_layers, theirs.num_hidden_layers)]


def _run(model: PreTrainedModel, batch: Any) -> Any:
    with torch.no_grad():
        return model(**batch, output_hidden_states=True, output_attentions=True)


def _probabilities(scores: Sequence[Tensor]) -> Array:
    """Attention of one text, (layers, heads, n, n)."""
    return torch.stack([layer[0].softmax(-1) for layer in scores]).numpy()
