"""Models and tokenizers from a folder or the hub; whatever cannot be had is one line that says why.

transformers makes up what it does not find: a model gets a random head, a folder without a tokenizer an empty one,
a packed folder random weights. Here each of these is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import set_seed

import ternarybert
from ternarybert import packed
from ternarybert.errors import HubError, UnsupportedModelError, suggest_path
from ternarybert.training.heads import ClassHead, Head


def load_config(model: str) -> Any:
    """The configuration of any model."""
    with finding(model):
        return AutoConfig.from_pretrained(model)


def trained_config(model: str, head: Head | type[Head]) -> Any:
    """The configuration of a model with a head of this kind; an error if the head would have to be made up."""
    config = load_config(model)
    if config.problem_type == "multi_label_classification":
        raise UnsupportedModelError(f"'{model}' gives several labels at once (problem_type); that cannot be distilled")
    names = config.architectures or []
    if not any(name.endswith(head.suffix) for name in names):
        raise UnsupportedModelError(
            f"'{model}' has no {head.what} (it is a {', '.join(names) or 'model of unknown kind'}); "
            "make a teacher of it first: ternarybert finetune"
        )
    return config


def label_names(model: str) -> list[str]:
    """The names of a classifier's labels, in the order of its ids; the single name of a regressor says nothing."""
    return [str(name) for _, name in sorted(trained_config(model, ClassHead).id2label.items())]


def load_trained(model: str, head: Head) -> PreTrainedModel:
    """A full-precision model with the head of the task."""
    refuse_packed(model)
    trained_config(model, head)
    network, made_up = _load(model, head)
    if made_up:
        raise UnsupportedModelError(f"'{model}' lacks {len(made_up)} weights of its model, such as {made_up[0]}")
    return network


def load_encoder(model: str, head: Head, seed: int) -> PreTrainedModel:
    """The model with a head for the task: its own if it has one of that size, else a new one, the same for a seed."""
    refuse_packed(model)
    load_config(model)
    set_seed(seed)
    # A head for another number of classes is replaced.
    network, made_up = _load(model, head, ignore_mismatched_sizes=True, **head.new_head())
    inside = [name for name in made_up if name.startswith(f"{network.base_model_prefix}.") and ".pooler." not in name]
    if inside:
        raise UnsupportedModelError(f"'{model}' lacks {len(inside)} weights of its encoder, such as {inside[0]}")
    return network


def _load(model: str, head: Head, **how: Any) -> tuple[PreTrainedModel, list[str]]:
    """A model, and the names of the weights that were made up because its files lack them or have another shape."""
    network: PreTrainedModel
    with finding(model):
        network, found = head.auto.from_pretrained(model, output_loading_info=True, **how)
    if network.dtype in (torch.float16, torch.bfloat16):  # files may be half; training and evaluation are not
        network.float()
        network.config.dtype = torch.float32
    mismatched = [name if isinstance(name, str) else name[0] for name in found["mismatched_keys"]]
    return network, sorted([*found["missing_keys"], *mismatched])


def load_any(model: str, head: Head) -> PreTrainedModel:
    """A model with the head of the task, full-precision or packed, ready to answer."""
    if not packed.is_packed(model):
        return load_trained(model, head).eval()
    trained_config(model, head)
    student: PreTrainedModel = ternarybert.load_torch(model)
    return student


def refuse_packed(model: str) -> None:
    """A packed model has lost the weights that training needs."""
    if packed.is_packed(model):
        raise UnsupportedModelError(f"'{model}' is a packed model already; training starts from a full-precision one")


def load_tokenizer(model: str) -> PreTrainedTokenizerBase:
    """The tokenizer that belongs to a model."""
    with finding(model):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(model)
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        raise UnsupportedModelError(f"'{model}' has no tokenizer; copy tokenizer.json from the model it was made of")
    return tokenizer


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, *models: PreTrainedModel) -> None:
    """A tokenizer that knows more words than a model would only be noticed in the middle of training."""
    words, table = max(tokenizer.get_vocab().values()) + 1, min(model.config.vocab_size for model in models)
    if words > table:
        raise UnsupportedModelError(
            f"the tokenizer has {words} words, the model only {table}; they do not belong together"
        )


@contextmanager
def finding(model: str) -> Iterator[None]:
    """Around a `from_pretrained`: every failure as one line."""
    path = Path(model)
    if path.is_dir() and not (path / "config.json").is_file():
        raise UnsupportedModelError(f"the folder '{model}' has no config.json; it is not a Hugging Face model")
    if not path.is_dir() and (path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1):
        raise UnsupportedModelError(f"there is no folder '{model}'{suggest_path(path)}")
    try:
        yield
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        reason = str(error).strip().split("\n")[0]
        if path.is_dir():
            raise UnsupportedModelError(f"cannot load '{model}': {reason}") from error
        hint = suggest_path(path)
        also = " The hub" if hint else ", and the hub"
        raise HubError(f"there is no folder '{model}'{hint}{also} does not help: {reason}") from error


def set_dropout(model: nn.Module, rate: float | None) -> None:
    """A recipe's dropout in place of the one that the model's configuration says."""
    if rate is not None:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = rate
