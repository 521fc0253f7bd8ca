"""What a model card says to the Hugging Face Hub: the metadata above its text.

The hub shows a model below the one that it was made from, and finds it by license, language and data. These come from
the card of the model that it was made from; scores are those of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ternarybert.data.glue import GLUE, HUB
from ternarybert.data.kinds import model_kind
from ternarybert.data.reranking import RERANKING
from ternarybert.data.squad.task import QUESTION_ANSWERING
from ternarybert.data.token_classification import TOKEN_CLASSIFICATION
from ternarybert.training.report import RunReport

CARD = "README.md"
_KEPT = ("license", "license_name", "license_link", "language", "datasets")  # true of whatever is made of a model
_METRICS = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr", "em": "exact_match"}
_SQUAD = ("squad", "squad_v2")
_PIPELINES = {
    TOKEN_CLASSIFICATION: "token-classification",
    QUESTION_ANSWERING: "question-answering",
    RERANKING: "text-ranking",
}


def read_metadata(model: str | Path) -> dict[str, Any]:
    """The metadata of a model's card, in a folder or on the hub; empty if there is none that can be read."""
    from huggingface_hub import ModelCard, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    from yaml import YAMLError

    try:
        path = Path(model) / CARD if Path(model).is_dir() else hf_hub_download(str(model), CARD)
        found: dict[str, Any] = ModelCard(
            Path(path).read_text(encoding="utf-8"), ignore_metadata_errors=True
        ).data.to_dict()
    except (OSError, ValueError, YAMLError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError):
        return {}
    return found


def metadata_of_origin(model: str | Path) -> dict[str, Any]:
    """What a card says about the model that another one was made from: its hub id, license, language and data.

    A folder has no id; then it is the model that its own card names.
    """
    found = read_metadata(model)
    named = found.get("base_model") if Path(model).is_dir() else str(model)
    origin = {key: found[key] for key in _KEPT if found.get(key)}
    return {**origin, "base_model": named} if named else origin


def metadata(
    name: str, config: Mapping[str, Any], report: RunReport, origin: Mapping[str, Any], *, quantized: bool
) -> str:
    """The metadata of a card as YAML, without the lines around it."""
    from huggingface_hub import EvalResult, ModelCardData

    tag = "sentence-similarity" if is_embedder(report) else _PIPELINES.get(model_kind(config) or "")
    tag = tag or ("text-classification" if model_kind(config) else "feature-extraction")
    data, described = _data_set(report.task)
    known = {key: origin[key] for key in (*_KEPT, "base_model") if origin.get(key)}
    if data is not None:
        listed = known.get("datasets", [])
        known["datasets"] = list(dict.fromkeys([*([listed] if isinstance(listed, str) else listed), data]))
    if quantized and "base_model" in known:
        known["base_model_relation"] = "quantized"
    results = [
        EvalResult(
            task_type=tag,
            dataset_split=part,
            metric_type=_METRICS.get(metric, metric),
            metric_name=metric,
            metric_value=round(value, 4),
            **described,
        )
        for part, scores in report.best.sets.items()
        for metric, value in scores.items()
    ]
    card = ModelCardData(
        model_name=name,
        library_name="ternarybert" if quantized else "transformers",
        tags=["ternarybert", "quantization", str(report.bits)] if quantized else None,
        pipeline_tag=tag,
        eval_results=results,
        **known,
    )
    return str(card.to_yaml())


def is_embedder(report: RunReport) -> bool:
    """Whether a run was one of an embedder."""
    return "cosine" in report.best.scores


def _data_set(task: str) -> tuple[str | None, dict[str, str]]:
    """The hub's data set of a task, if it has one, and how results name it."""
    if task in GLUE:
        return HUB, {"dataset_type": HUB, "dataset_name": f"GLUE {task}", "dataset_config": task}
    if task in _SQUAD:
        return f"rajpurkar/{task}", {"dataset_type": f"rajpurkar/{task}", "dataset_name": task}
    return None, {"dataset_type": "private", "dataset_name": task}
