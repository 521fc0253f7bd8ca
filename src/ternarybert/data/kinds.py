"""Which kind of task a trained model is for, by its config.json alone; so its data can be read before it is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ternarybert.data.classification import CLASSIFICATION
from ternarybert.data.multi_label import MULTI_LABEL
from ternarybert.data.reranking import RERANKING, cross_encoder_activation
from ternarybert.data.squad.task import QUESTION_ANSWERING
from ternarybert.data.token_classification import TOKEN_CLASSIFICATION

_BY_CLASS = {
    "ForTokenClassification": TOKEN_CLASSIFICATION,
    "ForQuestionAnswering": QUESTION_ANSWERING,
    "ForSequenceClassification": CLASSIFICATION,
}


def model_kind(config: Mapping[str, Any], folder: str | Path | None = None) -> str | None:
    """The kind of task of a model; None for an encoder without a head. The folder may have files of other libraries."""
    names = config.get("architectures") or [""]
    kind = next((found for end, found in _BY_CLASS.items() if str(names[0]).endswith(end)), None)
    if kind == CLASSIFICATION and config.get("problem_type") == "multi_label_classification":
        return MULTI_LABEL
    # Cross-encoders of sentence-transformers with several outputs are classifiers of pairs.
    if kind == CLASSIFICATION and _outputs(config) == 1 and cross_encoder_activation(config, folder) is not None:
        return RERANKING
    return kind


def _outputs(config: Mapping[str, Any]) -> int:
    """How many outputs a head has; two, as in transformers, unless config.json says otherwise."""
    return len(config.get("id2label") or range(int(config.get("num_labels", 2))))
