"""What differs between classifying rows and answering questions; the rest of this folder does both alike.

A `Head` belongs to a task. It knows the class of model the task needs, makes features of the data, reads the logits off
a model's outputs, and has the losses and scores on them. Logits are (B, C) of a classifier, one for every class, and
(B, 2, n) of a model that answers questions: how well each token begins and ends the answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.distill.features import Features, Logits
from ternarybert.tasks import SquadData, SquadTask, Task, TaskData

AnyTask: TypeAlias = Task | SquadTask
AnyData: TypeAlias = TaskData | SquadData
Sets: TypeAlias = dict[str, dict[str, float]]  # by evaluation set, then by metric


class Head(ABC):
    """What a task asks of a model."""

    suffix: ClassVar[str]  # of the model classes that have this head
    what: ClassVar[str]  # such a head, in messages
    auto: ClassVar[Any]  # the class that loads such models
    two_stages: ClassVar[bool]  # whether the paper distils L_trm alone before L
    per_token: ClassVar[bool]  # whether there are logits for every token
    task: Any

    @abstractmethod
    def new_head(self) -> dict[str, Any]:
        """Options of `from_pretrained` for a model that gets its head here."""

    @abstractmethod
    def check_labels(self, data: Any) -> None:
        """Refuse data that a model cannot be fine-tuned on."""

    @abstractmethod
    def fit(self, data: Any, model: PreTrainedModel) -> Any:
        """The data as a trained model understands them: with its order of labels, its threshold."""

    @abstractmethod
    def check_evals(self, data: Any, has_teacher: bool) -> None:
        """Refuse data that nothing can be scored on."""

    @abstractmethod
    def features(
        self, data: Any, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, *, labelled: bool = False
    ) -> Features:
        """Inputs of the model; `labelled` leaves out training rows of which nothing is known."""

    @abstractmethod
    def logits(self, outputs: Any) -> Tensor:
        """The logits among a model's outputs."""

    @abstractmethod
    def loss_pred(self, student: Tensor, teacher: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
        """L_pred; `mask` marks the real tokens, None counts padding too."""

    @abstractmethod
    def loss_labels(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """The loss on true labels."""

    @abstractmethod
    def scores(self, features: Features, name: str, logits: Logits, teacher: Any = None) -> dict[str, float]:
        """Scores on an evaluation set against the truth, where it is known, and against a teacher's `answers`."""

    def answers(self, features: Features, name: str, logits: Logits) -> Any:
        """What a model's answers are compared with when it is the teacher."""
        return logits

    def tuned(self, features: Features, name: str, logits: Logits) -> Head:
        """The head of a model that is still in training, with what is best for these logits."""
        return self

    def score_sets(self, features: Features, logits: Mapping[str, Logits], teacher: Mapping[str, Any]) -> Sets:
        """Scores of a new model on every evaluation set; what is tuned on the first holds for all."""
        first = next(iter(logits))
        tuned = self.tuned(features, first, logits[first])
        return {name: tuned.scores(features, name, said, teacher.get(name)) for name, said in logits.items()}

    def confusion(self, features: Features, name: str, logits: Logits) -> list[list[int]] | None:
        """True classes against answers, where there are classes."""
        return None

    def note(self, config: Any, features: Features, sets: Sets) -> None:  # noqa: B027 - most tasks have nothing to note
        """Write into a model's configuration what was found out about using it."""
