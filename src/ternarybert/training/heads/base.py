"""The interface of a head: everything in training that depends on the kind of task.

A head knows the class of models the task needs, tokenizes the data, reads the logits off a model's outputs, computes
the losses on them, and turns them into predictions. The metrics of predictions belong to the task (`Task.scores`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.data.task import ScoresBySet, Task, TaskData
from ternarybert.training.batches import Logits, TokenizedData

T = TypeVar("T", bound=Task)


class Head(ABC, Generic[T]):
    """What a kind of task needs from a model."""

    kind: ClassVar[str]  # of the task
    suffix: ClassVar[str]  # of the model classes that have this head
    description: ClassVar[str]  # in messages
    auto_class: ClassVar[Any]  # the class that loads such models
    two_stages: ClassVar[bool]  # whether the paper distills L_trm alone before L
    per_token: ClassVar[bool]  # whether the last dimension of the logits is the tokens

    def __init__(self, task: T) -> None:
        self.task = task

    @abstractmethod
    def model_options(self) -> dict[str, Any]:
        """Options of `from_pretrained` for a model that gets a new head."""

    @classmethod
    def fits(cls, architectures: Sequence[str]) -> bool:
        """Whether a model of these classes has this head."""
        return any(name.endswith(cls.suffix) for name in architectures)

    def ignores(self, tensor: str) -> bool:
        """Whether a model may lack this tensor."""
        return False

    def prepare(self, network: PreTrainedModel, model: str | Path) -> None:
        """Add to a loaded model what is not in its weights; for most kinds nothing."""

    def files(self, tokenized: TokenizedData, network: PreTrainedModel) -> dict[str, bytes]:
        """Files that a model's folder has besides weights and tokenizer; for most kinds none."""
        return {}

    @abstractmethod
    def check_training_labels(self, data: TaskData[T]) -> None:
        """Refuse data that a model cannot be fine-tuned on."""

    @abstractmethod
    def tokenize(
        self, data: TaskData[T], tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, *, labeled: bool = False
    ) -> TokenizedData:
        """Make the inputs of a model; `labeled` drops training examples without a label."""

    @abstractmethod
    def logits(self, outputs: Any) -> Tensor:
        """The logits among a model's outputs."""

    def counted(self, mask: Tensor | None, labels: Tensor | None) -> Tensor | None:
        """The tokens that L_pred counts; `mask` marks the real ones, None lets padding count."""
        return mask

    @abstractmethod
    def loss_pred(self, student: Tensor, teacher: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
        """L_pred; `mask` is what `counted` gives, None counts every token."""

    @abstractmethod
    def loss_labels(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """The loss on true labels."""

    def predictions(self, tokenized: TokenizedData, name: str, logits: Logits) -> Any:
        """What `Task.scores` compares, from the logits of an evaluation set."""
        return logits

    def tuned(self, tokenized: TokenizedData, name: str, logits: Logits) -> Head[T]:
        """The head with the decision threshold that is best on this set; most kinds have none."""
        return self

    def update_config(self, config: Any, tokenized: TokenizedData, sets: ScoresBySet) -> None:
        """Write into a model's configuration what its users need; for most kinds nothing."""

    def score_sets(
        self, tokenized: TokenizedData, logits: Mapping[str, Logits], teacher: Mapping[str, Any] | None = None
    ) -> ScoresBySet:
        """Scores of a model in training on every evaluation set; a threshold tuned on the first applies to all."""
        first = next(iter(logits))
        tuned = self.tuned(tokenized, first, logits[first])
        return tuned.scores(tokenized, logits, teacher)

    def scores(
        self, tokenized: TokenizedData, logits: Mapping[str, Logits], teacher: Mapping[str, Any] | None = None
    ) -> ScoresBySet:
        """Scores on every evaluation set, with a teacher's predictions also agreement."""
        examples, others = tokenized.data.evals, teacher or {}
        return {
            name: self.task.scores(examples[name], self.predictions(tokenized, name, each), others.get(name))
            for name, each in logits.items()
        }

    def confusion(self, tokenized: TokenizedData, name: str, logits: Logits) -> list[list[int]] | None:
        """True classes against predicted ones on an evaluation set; None where there are no classes or no labels."""
        return self.task.confusion(tokenized.data.evals[name], self.predictions(tokenized, name, logits))

    def calibration(self, tokenized: TokenizedData, name: str, logits: Logits) -> list[list[float]] | None:
        """How true the probabilities are on an evaluation set; None where that has no meaning."""
        return self.task.calibration(tokenized.data.evals[name], self.predictions(tokenized, name, logits))
