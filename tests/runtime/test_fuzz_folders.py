"""Some hundred of the folders that runs/fuzz_folders.py makes by the ten thousand."""

import pytest

from tests.test_runs import RUNS

from .fuzzed_folders import make_folders


@pytest.fixture
def fuzz(monkeypatch):
    monkeypatch.syspath_prepend(str(RUNS))
    import fuzz_folders

    return fuzz_folders.fuzz


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seeds", [range(400), pytest.param(range(400, 20_400), marks=pytest.mark.slow)])
def test_mutated_folders_give_answers_or_our_errors(fuzz, tmp_path, seeds):
    found = fuzz(make_folders(tmp_path), tmp_path / "work", seeds)
    assert 0.05 < found["answered"] / found["folders"] < 0.8  # the damage is neither harmless nor always obvious
