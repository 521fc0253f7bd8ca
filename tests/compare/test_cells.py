"""Grids by name: nothing is run here."""

import re

import pytest

from ternarybert.compare.cells import METHOD_INFO, Cell, Widths, make_cells, with_seeds
from ternarybert.compare.methods import METHODS
from ternarybert.compare.paper import EXPERIMENTS, GRIDS, METRICS
from ternarybert.data.glue import GLUE
from ternarybert.errors import OptionError
from ternarybert.recipe import PRESETS

CELLS = [cell for cells in GRIDS.values() for cell in cells]


def test_every_method_has_a_name_and_a_maker():
    assert METHOD_INFO.keys() == METHODS.keys()


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.group)
def test_every_cell_can_be_made(cell):
    assert re.fullmatch(METHOD_INFO[cell.method].possible, cell.bits)
    if cell.bits != "PQ":
        Widths.parse(cell.bits)
    for recipe in PRESETS.values():
        if cell.is_distilled:
            recipe.with_bits(cell.bits).override(dict(cell.changes))


def test_keys_tell_cells_apart_and_are_names_of_files():
    different = {(c.method, c.bits, c.changes, c.source, c.seed) for c in CELLS}
    assert len({cell.key for cell in CELLS}) == len(different)
    assert all(re.fullmatch(r"[\w.-]+", cell.key) for cell in CELLS)


def test_methods_by_name():
    assert make_cells(["gobo"], ["3-3-32", "2-8-8"]) == [Cell("gobo", "3-3-32")]
    assert [cell.bits for cell in make_cells(["qbert"], [])] == list(METHOD_INFO["qbert"].bits)
    assert make_cells(["albert"], [])[0].source == "albert"
    with pytest.raises(OptionError, match=r"'qbrt'.*'qbert'"):
        make_cells(["qbrt"], [])
    with pytest.raises(OptionError, match=r"gobo.*2-8-8.*3-4-32"):
        make_cells(["gobo"], ["2-8-8"])


def test_seeds():
    cells = with_seeds([Cell("q8bert", "8-8-8"), Cell("gobo", "2-2-32")], [1, 2])
    assert [(cell.method, cell.seed) for cell in cells] == [("q8bert", 1), ("q8bert", 2), ("gobo", 1)]
    assert cells[0].group == cells[1].group
    assert cells[0].key != cells[1].key


def test_the_printed_figures_are_complete():
    """As many figures as the task has, and the paper's own arithmetic: 418 MB divided by the size is the ratio."""
    for experiment in EXPERIMENTS.values():
        for row in experiment.rows:
            assert (row.cell is None) == bool(row.why)
            for task, scores in row.scores.items():
                assert 1 <= len(scores) <= len(METRICS[task])
                assert all(0 <= score <= 100 for score in scores)
    for task in GLUE:
        assert {metric for _, metric in METRICS[task]} == set(GLUE[task].task.metrics)
    main = {(row.label, row.bits): row for row in EXPERIMENTS["main"].rows}
    assert main["TernaryBERT, TWN", "2-2-8"].size == 28
    assert main["TernaryBERT, TWN", "2-2-8"].scores["mrpc"] == (91.2, 87.5)
    assert set(main["BERT", "32-32-32"].scores) == set(METRICS)
