"""Models and tokenizers from a folder or the Hugging Face Hub; whatever cannot be loaded is an error of one line.

transformers makes up what is missing: a model gets a random head, a folder without a tokenizer an empty one, a packed
folder random weights. Here each of these is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
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
from ternarybert.data.classification import CLASSIFICATION
from ternarybert.data.kinds import model_kind
from ternarybert.data.multi_label import MULTI_LABEL
from ternarybert.data.squad.task import QUESTION_ANSWERING
from ternarybert.errors import HubError, LabelError, UnsupportedModelError, suggest_path
from ternarybert.packed.labels import label_fault
from ternarybert.training.heads import HEADS, ClassificationHead, EmbeddingHead, Head
from ternarybert.training.heads.embedding import modules_folder

_log = logging.getLogger(__name__)


def load_config(model: str | Path, **changes: Any) -> Any:
    """The configuration of any model."""
    with explain_load_errors(model):
        return AutoConfig.from_pretrained(model, **changes)


def trained_config(model: str | Path, head: Head[Any] | type[Head[Any]]) -> Any:
    """The configuration of a model with a head of this kind; an error if it has none."""
    config = load_config(model)
    several = config.problem_type == "multi_label_classification"
    if several and head.kind == CLASSIFICATION:
        raise UnsupportedModelError(
            f"'{model}' gives several labels per text (problem_type is '{config.problem_type}'): "
            "give it data with lists of labels"
        )
    if head.kind == MULTI_LABEL and not several:
        raise UnsupportedModelError(
            f"'{model}' does not give several labels per text: give it data with one label each"
        )
    names = config.architectures or []
    if not head.fits(names):
        raise UnsupportedModelError(
            f"'{model}' has no {head.description} (it is a {', '.join(names) or 'model of unknown kind'}); "
            + (_other_kind(model, names) or _WITHOUT_HEAD)
        )
    return config


def is_embedder(model: str | Path, pooling: str | None = None) -> bool:
    """Whether a model is an encoder whose states are pooled: by its own modules, or because the user wants it."""
    if not EmbeddingHead.fits(load_config(model).architectures or []):
        if pooling is not None:
            raise UnsupportedModelError(f"'{model}' has a task head; --pooling {pooling} is for plain encoders")
        return False
    return pooling is not None or modules_folder(model) is not None


_WITHOUT_HEAD = "fine-tune it (ternarybert finetune), or make it an embedder (ternarybert ternarize --pooling mean)"

# What models with other heads do, and what can be done with them. A kind that can be trained one day leaves this table.
_OTHER_KINDS = {
    "ForTokenClassification": "it labels words (named entities, for instance): give it data with tokens and tags",
    "ForQuestionAnswering": "it answers questions: give it data with the columns question, context and answers",
    "ForSequenceClassification": "it classifies texts: give it data with texts and labels",
    "ForMultipleChoice": "it chooses between answers, and such models cannot be ternarized",
    "sentence embeddings": "it makes sentence embeddings: give it plain texts, or to classify texts make a classifier "
    "of it first: ternarybert finetune",
}


def _other_kind(model: str | Path, architectures: Sequence[str]) -> str | None:
    """What is known of a model that does something else; None for one without a head."""
    if (Path(model) / "modules.json").is_file():  # of the library sentence-transformers
        return _OTHER_KINDS["sentence embeddings"]
    return next((text for end, text in _OTHER_KINDS.items() if any(name.endswith(end) for name in architectures)), None)


def trained_kind(model: str | Path) -> str | None:
    """The kind of task that a model was trained for; None for an encoder without a head."""
    return model_kind(load_config(model).to_dict(), model)


def label_names(model: str | Path) -> list[str]:
    """The names of a model's labels in the order of its ids; a regression model has a single one."""
    kind = trained_kind(model)
    head = ClassificationHead if kind in (None, QUESTION_ANSWERING) else HEADS[kind]  # those have no labels: refused
    return [str(name) for _, name in sorted(trained_config(model, head).id2label.items())]


def check_label_names(config: Any) -> None:
    """Refuse labels that no packed model may have; it could be trained, and then not be loaded."""
    for name in map(str, config.id2label.values()):
        if fault := label_fault(name):
            raise LabelError(f"the label {name!a:.80} {fault}; rename it, in the data and in the model that has it")


def load_trained(model: str | Path, head: Head[Any]) -> PreTrainedModel:
    """A full-precision model with the head of the task."""
    refuse_packed(model)
    network, missing = _load(model, head, trained_config(model, head))
    missing = [name for name in missing if not head.ignores(name)]
    if missing:
        raise UnsupportedModelError(f"'{model}' lacks {len(missing)} weights of its model, such as {missing[0]}")
    head.prepare(network, model)
    return network


def load_encoder(model: str | Path, head: Head[Any], seed: int) -> PreTrainedModel:
    """The model with a head for the task: its own if the size fits, else a new one, the same for a seed."""
    refuse_packed(model)
    config = load_config(model, **head.model_options())
    check_label_names(config)
    names = config.architectures or []
    if any(name.endswith(tuple(_OTHER_KINDS)) and not name.endswith(head.suffix) for name in names):
        _log.warning("'%s' is a %s; its head is replaced by a new %s", model, ", ".join(names), head.description)
    set_seed(seed)
    network, missing = _load(model, head, config, ignore_mismatched_sizes=True)  # a head of another size is replaced
    inside = [name for name in missing if name.startswith(f"{network.base_model_prefix}.") and ".pooler." not in name]
    if inside:
        raise UnsupportedModelError(f"'{model}' lacks {len(inside)} weights of its encoder, such as {inside[0]}")
    return network


def _load(model: str | Path, head: Head[Any], config: Any, **options: Any) -> tuple[PreTrainedModel, list[str]]:
    """A model, and the names of the weights that its files lack or have in another shape."""
    network: PreTrainedModel
    with explain_load_errors(model):
        network, info = head.auto_class.from_pretrained(model, config=config, output_loading_info=True, **options)
    if network.dtype in (torch.float16, torch.bfloat16):  # training and evaluation are in single precision
        network.float()
        network.config.dtype = torch.float32
    mismatched = [name if isinstance(name, str) else name[0] for name in info["mismatched_keys"]]
    return network, sorted([*info["missing_keys"], *mismatched])


def load_any(model: str | Path, head: Head[Any]) -> PreTrainedModel:
    """A model with the head of the task, full-precision or packed, in evaluation mode."""
    if not packed.is_packed(model):
        return load_trained(model, head).eval()
    trained_config(model, head)
    student: PreTrainedModel = ternarybert.load_torch(model)
    head.prepare(student, model)
    return student


def refuse_packed(model: str | Path) -> None:
    """A packed model no longer has the weights that training needs."""
    if packed.is_packed(model):
        raise UnsupportedModelError(f"'{model}' is a packed model; training starts from a full-precision one")


def load_tokenizer(model: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer that belongs to a model."""
    with explain_load_errors(model):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(model)
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        raise UnsupportedModelError(f"'{model}' has no tokenizer; copy tokenizer.json from the model it was made of")
    return tokenizer


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, *models: PreTrainedModel) -> None:
    """Refuse a tokenizer with more tokens than a model has; training would fail in the middle."""
    tokens, table = max(tokenizer.get_vocab().values()) + 1, min(model.config.vocab_size for model in models)
    if tokens > table:
        raise UnsupportedModelError(
            f"the tokenizer has {tokens} tokens, the model only {table}; they do not belong together"
        )


@contextmanager
def explain_load_errors(model: str | Path) -> Iterator[None]:
    """Around a `from_pretrained`: every failure as one line."""
    name, path = str(model), Path(model)
    if path.is_dir() and not (path / "config.json").is_file():
        raise UnsupportedModelError(f"the folder '{name}' has no config.json; it is not a Hugging Face model")
    is_path = isinstance(model, Path) or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1
    if not path.is_dir() and is_path:
        raise UnsupportedModelError(f"there is no folder '{name}'{suggest_path(path)}")
    try:
        yield
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        reason = str(error).strip().split("\n")[0]
        if path.is_dir():
            raise UnsupportedModelError(f"cannot load '{name}': {reason}") from error
        hint = suggest_path(path)
        also = " Loading it" if hint else ", and loading it"
        raise HubError(f"there is no folder '{name}'{hint}{also} from the Hugging Face Hub failed: {reason}") from error


def set_dropout(model: nn.Module, dropout: float | None) -> None:
    """Use a recipe's dropout instead of the one in the model's configuration."""
    if dropout is not None:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
