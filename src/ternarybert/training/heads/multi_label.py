"""Several labels for a text or a pair: logits are (B, C), each a yes or no by itself."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.data.multi_label import MULTI_LABEL, SECTION, LabelChoices, MultiLabelTask
from ternarybert.data.task import ScoresBySet, TaskData
from ternarybert.errors import DataError
from ternarybert.training.batches import Logits, TokenizedData, longest_input
from ternarybert.training.heads.base import Head
from ternarybert.training.heads.classification import tokenize_texts

PROBLEM = "multi_label_classification"  # as transformers names it


class MultiLabelHead(Head[MultiLabelTask]):
    """A probability for each label of a row."""

    kind = MULTI_LABEL
    suffix = "ForSequenceClassification"
    description = "classification head"
    auto_class = AutoModelForSequenceClassification
    two_stages = False
    per_token = False

    def __init__(self, task: MultiLabelTask) -> None:
        super().__init__(task)
        self.found: MultiLabelTask | None = None  # with the thresholds of the last evaluation

    def model_options(self) -> dict[str, Any]:
        """As many outputs as there are labels, under their names."""
        names = dict(enumerate(self.task.labels or ()))
        ids = {name: i for i, name in names.items()}
        return {"num_labels": len(names), "problem_type": PROBLEM, "id2label": names, "label2id": ids}

    def check_training_labels(self, data: TaskData[MultiLabelTask]) -> None:
        """Rows with labels are needed."""
        if data.train is None or not self.task.has_references(data.train) or not self.task.labels:
            raise DataError(f"fine-tuning on '{self.task.name}' needs training rows with labels")

    def tokenize(
        self,
        data: TaskData[MultiLabelTask],
        tokenizer: PreTrainedTokenizerBase,
        model: PreTrainedModel,
        *,
        labeled: bool = False,
    ) -> TokenizedData:
        """One input per row."""
        return tokenize_texts(data, tokenizer, longest_input(self.task, model))

    def logits(self, outputs: Any) -> Tensor:
        """One for each label."""
        logits: Tensor = outputs.logits
        return logits

    def loss_pred(self, student: Tensor, teacher: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
        """Binary cross-entropy with the teacher's probabilities, the sum over the labels."""
        loss = functional.binary_cross_entropy_with_logits(student, teacher.sigmoid())
        return loss if reduction == "element" else loss * student.shape[1]

    def loss_labels(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Binary cross-entropy, the mean over the labels."""
        return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))

    def predictions(self, tokenized: TokenizedData, name: str, logits: Logits) -> LabelChoices:
        """Probabilities, and which labels apply."""
        return self.task.choices(logits)

    def tuned(self, tokenized: TokenizedData, name: str, logits: Logits) -> MultiLabelHead:
        """With the thresholds that are best on this set; they are saved with the model."""
        rows = tokenized.data.evals[name]
        self.found = self.task.tuned(rows, logits) if self.task.has_references(rows) else self.task
        return MultiLabelHead(self.found)

    def update_config(self, config: Any, tokenized: TokenizedData, sets: ScoresBySet) -> None:
        """Save the thresholds of the evaluation that was just made."""
        config.problem_type = PROBLEM
        thresholds = None if self.found is None else self.found.thresholds
        if thresholds is not None:
            values = dict(zip(self.task.labels or (), thresholds, strict=True))
            setattr(config, SECTION, {"thresholds": values})
