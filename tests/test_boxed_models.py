"""The model in the box: its size, its figures, and the same vectors from every batch, thread count and kernel."""

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import ternarybert.hf  # noqa: F401 sentence-transformers reads packed folders after it
from ternarybert.native import kernels
from ternarybert.runtime import load

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "models" / "minilm" / "src" / "ternarybert_minilm"
FOLDER = PACKAGE / "model"
FIGURES = json.loads((PACKAGE / "figures.json").read_text(encoding="utf-8"))

PAGE = (ROOT / "docs" / "how-to" / "recipe.md").read_text(encoding="utf-8")
TEXTS = ["", *(line for line in PAGE.splitlines() if line)][:40]


def test_the_folder_is_small_and_says_what_it_is():
    files = {path.relative_to(FOLDER).as_posix(): path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()}
    assert sum(files.values()) <= 5.3e6
    assert {"README.md", "config.json", "modules.json", "recipe.yaml", "vocab.txt"} <= set(files)
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name, row in FIGURES["summary"].items():
        if not name.startswith("sts1") or name.endswith("mean"):
            assert f"| {name} | {row['teacher']:.1f} | {row['model']:.1f} |" in card
    assert FIGURES["command"] in card


@pytest.fixture(scope="module")
def vectors():
    with load("minilm") as model:
        assert model.folder == FOLDER
        return model.encode(TEXTS)


def test_the_vectors_are_those_of_sentence_transformers(vectors):
    library = SentenceTransformer(str(FOLDER), device="cpu")
    assert library.max_seq_length == 256
    np.testing.assert_allclose(vectors, library.encode(TEXTS), rtol=0, atol=1e-6)


def test_the_vectors_do_not_depend_on_batch_threads_or_kernel(vectors):
    for kernel in kernels():
        with load(FOLDER, num_threads=2, kernel=kernel) as model:
            np.testing.assert_array_equal(model.encode(TEXTS[::-1])[::-1], vectors)
            np.testing.assert_array_equal(np.stack([model.encode(text) for text in TEXTS[:5]]), vectors[:5])


def test_what_means_the_same_is_near():
    with load("minilm") as model:
        near, far = model.similarity(
            model.encode(["How old are you?"]), model.encode(["What is your age?", "The train to Rome is late."])
        )[0]
    assert near > 0.6 and far < 0.2
