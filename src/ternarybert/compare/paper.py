"""The paper's tables: the printed numbers, and the cell that is the same experiment here; and the named grids of cells.

The numbers are those of TernaryBERT (EMNLP 2020): scores in percent, sizes in MB of 2^20 bytes. Where a table has two
scores, they are in the order of `METRICS`. A row without a cell is not run here and has a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ternarybert.compare.cells import METHOD_INFO, Cell, make_cells

# Evaluation set (None: all of them) and metric of each printed score.
METRICS: Mapping[str, tuple[tuple[str | None, str], ...]] = {
    "mnli": (("dev_matched", "accuracy"), ("dev_mismatched", "accuracy")),
    "qqp": ((None, "f1"), (None, "accuracy")),
    "qnli": ((None, "accuracy"),),
    "sst2": ((None, "accuracy"),),
    "cola": ((None, "matthews"),),
    "stsb": ((None, "pearson"), (None, "spearman")),
    "mrpc": ((None, "f1"), (None, "accuracy")),
    "rte": ((None, "accuracy"),),
    "squad": ((None, "exact"), (None, "f1")),
    "squad_v2": ((None, "exact"), (None, "f1")),
}
Scores = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class PaperRow:
    """A row of a table of the paper."""

    label: str
    bits: str
    size: int | None = None
    scores: Scores = field(default_factory=dict)
    cell: Cell | None = None
    why: str = ""  # not run here


@dataclass(frozen=True)
class Experiment:
    """A table of the paper."""

    title: str
    rows: tuple[PaperRow, ...]

    @property
    def cells(self) -> list[Cell]:
        """The cells that can be run."""
        return [row.cell for row in self.rows if row.cell is not None]

    @property
    def tasks(self) -> list[str]:
        """The tasks with printed scores."""
        return list(dict.fromkeys(task for row in self.rows for task in row.scores))


_GLUE = ("mnli", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")
_TWN_NAME, _LAT_NAME = "TernaryBERT, TWN", "TernaryBERT, LAT"
_LAT = (("weight.method", "lat"), ("embedding.method", "lat"))
_NO_TRM = (("distill.hidden", "0"), ("distill.attention", "0"))
_NO_LOGITS = (*_NO_TRM, ("distill.logits", "0"), ("distill.labels", "1"))

TWN = Cell("ternarybert", "2-2-8", _TWN_NAME)
LAT = Cell("ternarybert", "2-2-8", _LAT_NAME, _LAT)
TINY = Cell("tinybert", "32-32-32", source=None)
TERNARY_TINY = Cell("tinybert", "2-2-8")
THREE = Cell("ternarybert", "3-3-8", "3-bit BERT")
THREE_TINY = Cell("tinybert", "3-3-8", "3-bit TinyBERT")
EIGHT = Cell("ternarybert", "8-8-8", "8-bit BERT")
EIGHT_TINY = Cell("tinybert", "8-8-8", "8-bit TinyBERT")
Q2, Q8 = Cell("q2bert", "2-8-8"), Cell("q8bert", "8-8-8")
DISTIL, ALBERT = (Cell(name, "32-32-32", source=name) for name in ("distilbert", "albert"))


def _glue(text: str) -> dict[str, tuple[float, ...]]:
    """Parse the scores of the eight tasks in the paper's order; `-` was not reported."""
    scores = {}
    for task, figures in zip(_GLUE, text.split(), strict=True):
        numbers = tuple(float(figure) for figure in figures.split("/") if figure != "-")
        if numbers:
            scores[task] = numbers
    return scores


def _qbert(bits: str) -> Cell:
    return Cell("qbert", bits)


_SQUAD = {
    "bert": {"squad": (81.5, 88.7), "squad_v2": (74.5, 77.7)},
    "qbert": {"squad": (69.7, 79.6)},
    "q2bert": {"squad_v2": (50.1, 50.1)},
    "twn": {"squad": (79.9, 87.4), "squad_v2": (73.1, 76.4)},
    "lat": {"squad": (80.1, 87.5), "squad_v2": (73.3, 76.6)},
}
TEACHER = PaperRow(
    "BERT",
    "32-32-32",
    418,
    _glue("84.5/84.9 87.5/90.9 92.0 93.1 58.1 89.8/89.4 90.6/86.5 71.1") | _SQUAD["bert"],
    why="it is the teacher",
)
MAIN = Experiment(
    "Tables 1 and 3: development sets of GLUE and SQuAD",
    (
        TEACHER,
        PaperRow(
            "TinyBERT", "32-32-32", 258, _glue("84.5/84.5 88.0/91.1 91.1 93.0 54.1 89.8/89.6 91.0/87.3 71.8"), TINY
        ),
        PaperRow("Q-BERT", "2-8-8", 43, _glue("76.6/77.0 - - 84.6 - - - -") | _SQUAD["qbert"], _qbert("2-8-8")),
        PaperRow(
            "Q2BERT",
            "2-8-8",
            43,
            _glue("47.2/47.3 67.0/75.9 61.3 80.6 0 4.4/4.7 81.2/68.4 52.7") | _SQUAD["q2bert"],
            Q2,
        ),
        PaperRow(
            _TWN_NAME,
            "2-2-8",
            28,
            _glue("83.3/83.3 86.7/90.1 91.1 92.8 55.7 87.9/87.7 91.2/87.5 72.9") | _SQUAD["twn"],
            TWN,
        ),
        PaperRow(
            _LAT_NAME,
            "2-2-8",
            28,
            _glue("83.5/83.4 86.6/90.1 91.5 92.5 54.3 87.9/87.6 91.1/87.0 72.2") | _SQUAD["lat"],
            LAT,
        ),
        PaperRow(
            "TernaryTinyBERT",
            "2-2-8",
            18,
            _glue("83.4/83.8 87.2/90.5 89.9 93.0 53.0 86.9/86.5 91.5/88.0 71.8"),
            TERNARY_TINY,
        ),
        PaperRow("Q-BERT", "8-8-8", 106, _glue("83.9/83.8 - - 92.9 - - - -"), _qbert("8-8-8")),
        PaperRow("Q8BERT", "8-8-8", 106, _glue("- 88.0/- 90.6 92.2 58.5 89.0/- 89.6/- 68.8"), Q8),
        PaperRow(
            "8-bit BERT", "8-8-8", 106, _glue("84.2/84.7 87.1/90.5 91.8 93.7 60.6 89.7/89.3 90.8/87.3 71.8"), EIGHT
        ),
        PaperRow(
            "8-bit TinyBERT",
            "8-8-8",
            65,
            _glue("84.4/84.6 87.9/91.0 91.0 93.3 54.7 90.0/89.4 91.2/87.5 72.2"),
            EIGHT_TINY,
        ),
    ),
)


def _granularity(embedding: str, weight: str, *scores: float) -> PaperRow:
    changes = (("embedding.granularity", embedding), ("weight.granularity", weight))
    label = f"embedding {embedding}-wise, weights {weight}-wise"
    return PaperRow(label, "2-2-8", None, {"mnli": scores}, Cell("ternarybert", "2-2-8", label, changes))


GRANULARITY = Experiment(
    "Table 4: granularity of ternarization",
    (
        _granularity("layer", "layer", 83.0, 83.0),
        _granularity("layer", "row", 82.9, 82.9),
        _granularity("row", "layer", 83.3, 83.3),
        _granularity("row", "row", 83.2, 82.9),
    ),
)


def _activation(scheme: str, *scores: float) -> PaperRow:
    cell = Cell("ternarybert", "2-2-8", f"activations {scheme}", (("activation.scheme", scheme),))
    return PaperRow(cell.label, "2-2-8", None, {"squad": scores}, cell)


ACTIVATION = Experiment(
    "Table 5: symmetric and min-max 8-bit activations",
    (_activation("symmetric", 79.0, 86.9), _activation("minmax", 79.9, 87.4)),
)


def _distillation(label: str, changes: tuple[tuple[str, str], ...], **scores: tuple[float, ...]) -> PaperRow:
    return PaperRow(label, "2-2-8", None, scores, Cell("ternarybert", "2-2-8", label, changes))


DISTILLATION = Experiment(
    "Table 6: distillation of Transformer layers and logits",
    (
        _distillation("TernaryBERT", (), mnli=(83.3, 83.3), cola=(55.7,), rte=(72.9,), squad=(79.9, 87.4)),
        _distillation("-Trm", _NO_TRM, mnli=(82.9, 83.3), cola=(52.7,), rte=(69.0,), squad=(76.6, 84.9)),
        _distillation("-Trm-logits", _NO_LOGITS, mnli=(80.8, 81.1), cola=(45.4,), rte=(56.3,), squad=(74.3, 83.2)),
    ),
)
INITIALIZATION = Experiment(
    "Table 7: data augmentation and initialization",
    (
        PaperRow(
            "TernaryBERT",
            "2-2-8",
            None,
            {"cola": (55.7,), "mrpc": (91.2, 87.5), "rte": (72.9,)},
            why="with data augmentation: ternarybert ternarize --augment",
        ),
        PaperRow(
            "-Data augmentation",
            "2-2-8",
            None,
            {"cola": (50.7,), "mrpc": (91.0, 87.5), "rte": (68.2,)},
            Cell("ternarybert", "2-2-8", "from the fine-tuned model"),
        ),
        PaperRow(
            "-Initialization",
            "2-2-8",
            None,
            {"cola": (46.0,), "mrpc": (91.0, 87.2), "rte": (66.4,)},
            Cell("ternarybert", "2-2-8", "from the pre-trained model", source="pretrained"),
        ),
    ),
)


def _mnli(label: str, bits: str, size: int, score: float, cell: Cell | None = None, why: str = "") -> PaperRow:
    return PaperRow(label, bits, size, {"mnli": (score,)}, cell, why)


_NO_CHECKPOINT = "no such checkpoint is published"
COMPARISON = Experiment(
    "Figure 1 and Table 8: other compression methods, MNLI-m",
    (
        _mnli("DistilBERT", "32-32-32", 250, 81.6, DISTIL),
        _mnli(
            "TinyBERT-4L", "32-32-32", 55, 82.8, why="4 layers of 312; here TinyBERT has half of the teacher's layers"
        ),
        _mnli("ALBERT-E64", "32-32-32", 38, 80.8, why=_NO_CHECKPOINT),
        _mnli("ALBERT-E128", "32-32-32", 45, 81.6, ALBERT),
        _mnli("ALBERT-E256", "32-32-32", 62, 81.5, why=_NO_CHECKPOINT),
        _mnli("ALBERT-E768", "32-32-32", 120, 82.0, why=_NO_CHECKPOINT),
        _mnli("LayerDrop-6L", "32-32-32", 328, 82.9, Cell("layerdrop", "32-32-32")),
        _mnli("LayerDrop-3L", "32-32-32", 224, 78.6, Cell("layerdrop-quarter", "32-32-32")),
        _mnli("Quant-Noise", "PQ", 38, 83.6, Cell("quant-noise", "PQ")),
        _mnli("Q-BERT", "2/4-8-8", 53, 83.5, _qbert("2/4-8-8")),
        _mnli("Q-BERT", "2/3-8-8", 46, 81.8, _qbert("2/3-8-8")),
        _mnli("Q-BERT", "2-8-8", 28, 76.6, _qbert("2-8-8")),
        _mnli("GOBO", "3-4-32", 43, 83.7, Cell("gobo", "3-4-32")),
        _mnli("GOBO", "2-2-32", 28, 71.0, Cell("gobo", "2-2-32")),
        _mnli("3-bit BERT", "3-3-8", 41, 84.2, THREE),
        _mnli("3-bit TinyBERT", "3-3-8", 25, 83.7, THREE_TINY),
        _mnli("TernaryBERT", "2-2-8", 28, 83.5, LAT),
        _mnli("TernaryTinyBERT", "2-2-8", 18, 83.4, TERNARY_TINY),
    ),
)
THREE_BIT = Experiment(
    "Table 10: 3-bit BERT and TinyBERT",
    (
        PaperRow(_LAT_NAME, "2-2-8", 28, _glue("83.5/83.4 86.6/90.1 91.5 92.5 54.3 87.9/87.6 91.1/87.0 72.2"), LAT),
        PaperRow(
            "3-bit BERT", "3-3-8", 41, _glue("84.2/84.7 86.9/90.4 92.0 92.8 54.4 88.6/88.3 91.3/87.5 70.8"), THREE
        ),
        PaperRow(
            "3-bit TinyBERT",
            "3-3-8",
            25,
            _glue("83.7/84.0 87.2/90.5 90.7 93.0 53.4 86.1/85.9 91.2/87.3 72.6"),
            THREE_TINY,
        ),
    ),
)
MIXED = Experiment(
    "Table 9: mixed-precision Q-BERT",
    (
        PaperRow("Q-BERT", "2/3-8-8", 46, {"sst2": (92.1,), "squad": (79.3, 87.0)}, _qbert("2/3-8-8")),
        PaperRow(_TWN_NAME, "2-2-8", 28, {"sst2": (92.8,), "squad": (79.9, 87.4)}, TWN),
    ),
)
EXPERIMENTS: Mapping[str, Experiment] = {
    "main": MAIN,
    "granularity": GRANULARITY,
    "activation": ACTIVATION,
    "distillation": DISTILLATION,
    "init": INITIALIZATION,
    "comparison": COMPARISON,
    "qbert": MIXED,
    "3bit": THREE_BIT,
}

# Methods that need no other pre-trained model than the teacher.
ALONE = [name for name, info in METHOD_INFO.items() if info.source is None and name != "layerdrop-quarter"]

GRIDS: Mapping[str, list[Cell]] = {
    "all": [*make_cells(ALONE, []), LAT],
    "paper-main": MAIN.cells,
    "paper-figure1": COMPARISON.cells,
    "granularity": GRANULARITY.cells,
    "activation": ACTIVATION.cells,
    "distillation": DISTILLATION.cells,
    "initialization": INITIALIZATION.cells,
    "3bit": THREE_BIT.cells,
}
