"""Teacher intervention: at first, layers are fed the teacher's input instead of the student's own.

In a ternary student the errors of all layers below arrive at every layer. With the teacher's hidden states as input, a
layer learns its own part first; the student's own inputs then take over (Kim et al., EACL 2023).

A layer gets the teacher's input with probability p, which falls linearly from 1 to 0 over the first steps, their share
being `distill.intervention`. Which layers do is drawn for each step, from the run's seed and the number of the step
alone: all micro-batches and all processes of a step agree, and a resumed run draws the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor, nn
from transformers import PreTrainedModel

from ternarybert.families import family_of


def intervention_probability(done: float, share: float) -> float:
    """P after the share `done` of a run; 0 without intervention."""
    return max(0.0, 1.0 - done / share) if share else 0.0


def fed_layers(layers: int, probability: float, seed: int, step: int) -> list[bool]:
    """Which layers get the teacher's input in this step."""
    drawn: list[bool] = (np.random.default_rng([seed, step]).random(layers) < probability).tolist()
    return drawn


class TeacherInputs:
    """Around a forward pass of the student: gives some layers the teacher's hidden states as input."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.layers: list[nn.Module] = list(model.base_model.get_submodule(family_of(model.config).layers))
        self.embedding_output: Tensor | None = None  # the student's own, which transformers records after the exchange

    @contextmanager
    def feeding(self, inputs: Sequence[Tensor], fed: Sequence[bool]) -> Iterator[None]:
        """Within, layer l gets `inputs[l]` where `fed[l]`; `inputs` are the teacher's, for each layer one."""
        handles = [self.layers[0].register_forward_pre_hook(self._keep)]
        for layer, hidden, is_fed in zip(self.layers, inputs, fed, strict=True):
            if is_fed:
                handles.append(layer.register_forward_pre_hook(_replacing(hidden)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def own_states(self, hidden_states: Sequence[Tensor]) -> list[Tensor]:
        """The student's own hidden states, from those that its forward pass returned."""
        assert self.embedding_output is not None
        own, self.embedding_output = [self.embedding_output, *hidden_states[1:]], None
        return own

    def _keep(self, _: nn.Module, arguments: tuple[Any, ...]) -> None:
        self.embedding_output = arguments[0]


def _replacing(hidden: Tensor) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
    return partial(_replace, hidden)


def _replace(hidden: Tensor, _: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return (hidden.to(arguments[0].dtype), *arguments[1:])
