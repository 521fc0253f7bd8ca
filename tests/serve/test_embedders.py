"""Embedders behind the server: their folder's own pooling, Dense, normalization and prompts, to the last bit."""

import shutil

import pytest

from ternarybert.runtime import load
from tests.embedders import packed_embedder

from .running import RunningServer

TEXTS = ["a good film", "the film was good", "x"]
SETTINGS = {"prompts": {"query": "film ", "plain": "good "}, "default_prompt_name": "query"}


@pytest.mark.parametrize(
    ("pooling", "more"),
    [
        ("mean", {}),
        ("cls", {"normalize": False}),
        ("max", {"dense": 20, "settings": SETTINGS}),
        ("mean", {"settings": SETTINGS, "include_prompt": False}),
    ],
)
def test_vectors_are_those_of_encode(tmp_path, pooling, more):
    made = packed_embedder(tmp_path / "model", pooling=pooling, **more)
    with RunningServer(made) as server, load(made, num_threads=1) as model:
        plain = server.ok("/embed", {"inputs": TEXTS, "normalize": False})
        assert plain == model.encode(TEXTS).tolist()
        short = server.ok("/embed", {"inputs": TEXTS, "dimensions": 8})
        assert short == model.encode(TEXTS, truncate_dim=8, normalize=True).tolist()
        wanted = model.encode(TEXTS, normalize=not model.modules.normalizes).tolist()
        assert server.ok("/embed", {"inputs": TEXTS}) == wanted
        data = server.ok("/v1/embeddings", {"input": TEXTS})["data"]
        assert [one["embedding"] for one in data] == wanted
        if "settings" in more:
            named = server.ok("/embed", {"inputs": TEXTS, "normalize": False, "prompt_name": "plain"})
            assert named == model.encode(TEXTS, prompt_name="plain").tolist()
        assert server.send("GET", "/info")[2]["model_type"] == {"embedding": {"pooling": pooling}}


def test_an_explicit_pooling_ignores_the_modules(tmp_path):
    made = packed_embedder(tmp_path / "model", pooling="mean", dense=20)
    with RunningServer(made, "--pooling", "cls") as server, load(made, num_threads=1) as model:
        assert server.ok("/embed", {"inputs": TEXTS, "normalize": False}) == model.encode(TEXTS, pooling="cls").tolist()


def test_an_installed_model_is_served_by_name(tmp_path):
    """A package with the entry point of models/minilm, as pip installs it."""
    made = packed_embedder(tmp_path / "made")
    package = tmp_path / "site" / "ternarybert_minilm"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copytree(made, package / "model")
    about = tmp_path / "site" / "ternarybert_minilm-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ternarybert-minilm\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[ternarybert.models]\nminilm = ternarybert_minilm\n")
    with RunningServer("minilm", environment={"PYTHONPATH": str(tmp_path / "site")}) as server:
        with load(made, num_threads=1) as model:
            assert server.ok("/models/minilm/embed", {"inputs": TEXTS}) == model.encode(TEXTS).tolist()
        assert [one["id"] for one in server.send("GET", "/v1/models")[2]["data"]] == ["minilm"]
        assert server.post("/embed", {"inputs": "x", "model": "other"})[0] == 404
