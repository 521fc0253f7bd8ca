"""Hidden representations and attention of teacher and student on some texts: measured, drawn and put on the page.

These are Figure 3 and Appendices A and E of the paper. A student with fewer layers is compared with the teacher's
layers that it learned from. Attention is the softmax of the scores; rounding it to 8 bits, as the student does, would
not be visible in a figure. torch is imported only when models are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ternarybert.errors import DataError, UnsupportedModelError
from ternarybert.families import max_tokens
from ternarybert.report.charts import HEAT, STUDENT, STYLE, TEACHER, WIDTH, Picture, heat_map, picture, printable
from ternarybert.report.page import Part, ReportTable

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

Array = npt.NDArray[np.float32]
Text = tuple[str, ...]  # a text or a pair

# The sentences of the paper's Appendix E.
TEXTS: tuple[Text, ...] = (
    ("this movie is maddening.",),
    ("old-form moviemaking at its best.",),
    ("Who does John visit Sally because he likes?",),
    ("The more pictures of him that appear in the news, the more embarrassed John becomes.",),
)
MAX_TEXTS = 64  # on which hidden representations are collected
_MAX_MAPS = 4  # texts whose attention is shown
_QUANTILE_NAMES = ("minimum", "1 %", "25 %", "median", "75 %", "99 %", "maximum")

QUANTILES = (0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0)
MAX_TOKENS = 32  # of a map; more would be illegible
_BINS = 96


@dataclass(frozen=True, eq=False)
class TextAttention:
    """The tokens of a text, and the attention (layers, heads, queries, keys) of both models."""

    tokens: tuple[str, ...]
    teacher: Array
    student: Array


@dataclass(frozen=True, eq=False)
class Activations:
    """Hidden values and attention of both models; the first layer is the output of the embedding."""

    layers: tuple[int, ...]  # of the teacher, one for each layer of the student
    teacher: tuple[Array, ...]  # hidden values of all tokens, by layer
    student: tuple[Array, ...]
    attention: tuple[TextAttention, ...]


def read_texts(path: Path) -> list[Text]:
    """Read one text per line; a tab separates the two texts of a pair."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path} as text: {error}") from error
    texts = [tuple(line.split("\t")[:2]) for line in lines if line.strip()]
    if not texts:
        raise DataError(f"{path} has no texts; write one text per line")
    return texts


def activation_parts(student: Path, teacher: Path, texts: Sequence[Text], prefix: str) -> list[Part]:
    """The parts of a report on hidden representations and attention."""
    activations = measure_activations(student, teacher, texts[:MAX_TEXTS])
    return [_summary_part(activations, len(texts), prefix), *_attention_parts(activations, texts, prefix)]


def _summary_part(activations: Activations, texts: int, prefix: str) -> Part:
    rows = []
    for i, pair in enumerate(zip(activations.teacher, activations.student, strict=True)):
        for whose, values in zip(("teacher", "student"), pair, strict=True):
            numbers = [f"{value:.2f}" for value in (*quantiles(values), skewness(values))]
            rows.append([f"{layer_name(i)}, {whose}", *numbers])
    table = ReportTable("Quantiles and skewness of the hidden values", ["", *_QUANTILE_NAMES, "skewness"], rows)
    tokens, used = sum(len(text.tokens) for text in activations.attention), len(activations.attention)
    text = f"Measured on {tokens} tokens of {f'the first {used} of ' if used < texts else ''}{texts} texts."
    if used > _MAX_MAPS:
        text += f" Attention is drawn for the first {_MAX_MAPS}."
    pictures = [hidden(activations, f"{prefix}hidden"), head_map(activations.attention, f"{prefix}heads")]
    return Part("Hidden representations and attention", [text], pictures=pictures, long_tables=[table])


def _attention_parts(activations: Activations, texts: Sequence[Text], prefix: str) -> list[Part]:
    parts = []
    for number, attention in enumerate(activations.attention[:_MAX_MAPS], 1):
        pictures = [
            attention_maps(attention, layer, f"{prefix}attention-{number}-layer-{layer + 1}", f"Text {number}")
            for layer in shown_layers(len(activations.layers) - 1)
        ]
        parts.append(Part(f"Attention in text {number}", [f"“{'” and “'.join(texts[number - 1])}”"], pictures=pictures))
    return parts


def measure_activations(student: Path, teacher: Path, texts: Sequence[Text]) -> Activations:
    """Run both models on the texts one by one, so that there is no padding."""
    import ternarybert
    from ternarybert.training.models import check_tokenizer, load_tokenizer

    student_model = ternarybert.load_torch(student).base_model.eval()
    teacher_model = _load_teacher(teacher)
    layers = _layers(student_model, teacher_model, student, teacher)
    tokenizer = load_tokenizer(str(student))
    check_tokenizer(tokenizer, student_model, teacher_model)
    longest = min(tokenizer.model_max_length, max_tokens(student_model.config) or tokenizer.model_max_length)
    student_hidden: list[list[Array]] = [[] for _ in layers]
    teacher_hidden: list[list[Array]] = [[] for _ in layers]
    attention = []
    for text in texts:
        batch = tokenizer(*text, return_tensors="pt", truncation=True, max_length=longest)
        student_out, teacher_out = _run(student_model, batch), _run(teacher_model, batch)
        for i, layer in enumerate(layers):
            student_hidden[i].append(student_out.hidden_states[i].numpy().reshape(-1))
            teacher_hidden[i].append(teacher_out.hidden_states[layer].numpy().reshape(-1))
        tokens = tuple(tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist()))
        learned_from = [teacher_out.attentions[layer - 1] for layer in layers[1:]]
        attention.append(TextAttention(tokens, _probabilities(learned_from), _probabilities(student_out.attentions)))
    joined = [tuple(np.concatenate(values) for values in side) for side in (teacher_hidden, student_hidden)]
    return Activations(tuple(layers), joined[0], joined[1], tuple(attention))


def _load_teacher(folder: Path) -> PreTrainedModel:
    """Load the encoder of a plain folder in float32; missing weights are an error, not random."""
    import torch
    from transformers import AutoModel

    from ternarybert.student import expose_scores
    from ternarybert.training.models import explain_load_errors

    with explain_load_errors(folder):
        model, info = AutoModel.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    if missing := sorted(name for name in info["missing_keys"] if not name.startswith("pooler.")):
        raise UnsupportedModelError(f"{folder} lacks {len(missing)} weights of its encoder, such as {missing[0]}")
    return expose_scores(model).eval()


def _layers(student_model: PreTrainedModel, teacher_model: PreTrainedModel, student: Path, teacher: Path) -> list[int]:
    """The teacher's layer for each layer of the student; an error if it cannot be the student's teacher."""
    from ternarybert.training.losses import layer_map

    ours, theirs = student_model.config, teacher_model.config
    for what in ("vocab_size", "num_attention_heads"):
        if getattr(ours, what) != getattr(theirs, what):
            raise UnsupportedModelError(
                f"{teacher} is not the teacher of {student}: {what} is {getattr(theirs, what)} in one and "
                f"{getattr(ours, what)} in the other"
            )
    if theirs.num_hidden_layers % ours.num_hidden_layers:
        raise UnsupportedModelError(
            f"{teacher} is not the teacher of {student}: its {theirs.num_hidden_layers} layers are not a multiple "
            f"of {ours.num_hidden_layers}"
        )
    return [0, *layer_map(ours.num_hidden_layers, theirs.num_hidden_layers)]


def _run(model: PreTrainedModel, batch: Any) -> Any:
    import torch

    with torch.no_grad():
        return model(**batch, output_hidden_states=True, output_attentions=True)


def _probabilities(scores: Sequence[Tensor]) -> Array:
    """Attention of one text, (layers, heads, n, n)."""
    import torch

    probabilities: Array = torch.stack([layer[0].softmax(-1) for layer in scores]).numpy()
    return probabilities


def quantiles(values: Array) -> tuple[float, ...]:
    """Minimum, 1 %, 25 %, median, 75 %, 99 %, maximum."""
    return tuple(float(value) for value in np.quantile(values, QUANTILES))


def skewness(values: Array) -> float:
    """The third standardized moment: negative if the long tail is on the left."""
    centered = values.astype(np.float64) - values.mean(dtype=np.float64)
    return float(np.mean(centered**3) / max(np.mean(centered**2) ** 1.5, 1e-30))


def layer_name(index: int) -> str:
    """The name of a hidden representation: 0 is the output of the embedding."""
    return "embedding" if index == 0 else f"layer {index}"


@rc_context(STYLE)
def hidden(activations: Activations, name: str) -> Picture:
    """A histogram of every layer, with teacher and student overlaid."""
    rows = len(activations.layers)
    figure = Figure(figsize=(WIDTH, 0.9 + 0.58 * rows), layout="constrained")
    every = figure.subplots(rows, sharex=True, squeeze=False)[:, 0]
    ends = [np.quantile(values, (0.005, 0.995)) for values in (*activations.teacher, *activations.student)]
    edges = np.linspace(min(low for low, _ in ends), max(high for _, high in ends), _BINS + 1)
    for i, axes in enumerate(every):
        for values, color, filled in (
            (activations.teacher[i], TEACHER, True),
            (activations.student[i], STUDENT, False),
        ):
            shares = np.histogram(values, edges)[0] / values.size
            style: dict[str, Any] = {"fill": True, "alpha": 0.55} if filled else {"linewidth": 1.4}
            axes.stairs(shares, edges, color=color, label="teacher" if filled else "student", **style)
        axes.axvline(0, color=STYLE["text.color"], linewidth=0.6, linestyle=":")
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_ylabel(layer_name(i), rotation=0, ha="right", va="center", fontsize=9)
    every[-1].set_xlabel("hidden value")
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    caption = (
        "Values of the hidden representations after each layer; every layer has its own vertical scale. In the paper "
        "those of a full-precision BERT are skewed to the negative side, most in early layers, which is why it uses "
        "min-max ranges."
    )
    return picture(figure, name, "Hidden representations", caption)


def shown_layers(layers: int) -> list[int]:
    """Indices of up to four layers, from the first to the last."""
    return sorted({round(layer) for layer in np.linspace(0, layers - 1, 4).tolist()})


@rc_context(STYLE)
def attention_maps(attention: TextAttention, layer: int, name: str, which: str) -> Picture:
    """Attention of teacher and student side by side, averaged over the heads of a layer."""
    count = min(len(attention.tokens), MAX_TOKENS)
    maps = [side[layer, :, :count, :count].mean(0) for side in (attention.teacher, attention.student)]
    tokens = [printable(token, 12) for token in attention.tokens[:count]]
    size = 8 if count <= 12 else 6.5 if count <= 20 else 5
    label = 0.62 * size / 72 * max(map(len, tokens)) + 0.1  # inches for the tokens on each axis
    figure = Figure(figsize=(WIDTH, (WIDTH - label) / 2 + label + 0.25), layout="constrained")
    every = figure.subplots(1, 2)
    top = max(float(each.max()) for each in maps)
    for axes, values, whose in zip(every, maps, ("teacher", "student"), strict=True):
        _map(axes, values, tokens, size, top)
        axes.set_title(whose)
    every[1].set_yticks([])
    cut = "" if count == len(attention.tokens) else f" The first {count} of {len(attention.tokens)} tokens."
    caption = (
        f"Layer {layer + 1}, mean over the heads: attention of each token (row) to each other token (column).{cut}"
    )
    return picture(figure, name, f"{which}: attention in layer {layer + 1}", caption)


def _map(axes: Axes, values: Array, tokens: Sequence[str], size: float, top: float) -> None:
    axes.imshow(values, cmap=HEAT, vmin=0, vmax=top, interpolation="none")
    axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=size)
    axes.set_yticks(range(len(tokens)), tokens, fontsize=size)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def head_differences(attention: Sequence[TextAttention]) -> Array:
    """The share of the student's attention on other tokens than the teacher's, by layer and head, mean over all tokens.

    Half the sum of absolute differences of a row: 0 if both attend to the same tokens, 1 if to none in common.
    """
    rows = [np.abs(text.teacher - text.student).sum(-1).transpose(2, 0, 1) / 2 for text in attention]
    mean: Array = np.concatenate(rows).mean(0)
    return mean


@rc_context(STYLE)
def head_map(attention: Sequence[TextAttention], name: str) -> Picture:
    """A heat map of the differences of all heads."""
    grid = head_differences(attention)
    layers, heads = grid.shape
    figure = Figure(figsize=(WIDTH, 0.9 + 0.27 * layers), layout="constrained")
    axes = figure.subplots()
    heat_map(
        axes,
        grid,
        (0, max(0.5, float(grid.max()))),
        [f"{value * 100:.0f}" for value in grid.reshape(-1)],
        size=8 if heads <= 12 else 6,
    )
    axes.set_xticks(range(heads), [str(head + 1) for head in range(heads)])
    axes.set_yticks(range(layers), [str(layer + 1) for layer in range(layers)])
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    caption = (
        "Percent of the student's attention that is on other tokens than the teacher's, mean over all tokens: "
        "0 means the same, 100 nothing in common."
    )
    return picture(figure, name, "Attention of every head", caption)
