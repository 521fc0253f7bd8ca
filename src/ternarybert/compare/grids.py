"""The grids that have a name: all methods, and the paper's tables for the user's own model."""

from __future__ import annotations

from collections.abc import Mapping

from ternarybert.compare.cells import KINDS, Cell, make_cells
from ternarybert.compare.paper import (
    ACTIVATION,
    COMPARISON,
    DISTILLATION,
    GRANULARITY,
    INITIALISATION,
    LAT,
    MAIN,
    THREE_BIT,
)

# Everything that can be made of the teacher alone.
ALONE = [name for name, kind in KINDS.items() if kind.source is None and name != "layerdrop-quarter"]

GRIDS: Mapping[str, list[Cell]] = {
    "all": [*make_cells(ALONE, []), LAT],
    "paper-main": MAIN.cells,
    "paper-figure1": COMPARISON.cells,
    "granularity": GRANULARITY.cells,
    "activation": ACTIVATION.cells,
    "distillation": DISTILLATION.cells,
    "initialisation": INITIALISATION.cells,
    "3bit": THREE_BIT.cells,
}
