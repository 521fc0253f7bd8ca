"""One small packed model of each kind; each is only read."""

import pytest

from tests import embedders
from tests.runtime.folders import save_student


@pytest.fixture(scope="session")
def embedder(shared_folder):
    settings = {"prompts": embedders.PROMPTS, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    return str(shared_folder("integrated-embedder", lambda path: embedders.packed_embedder(path, settings=settings)))


@pytest.fixture(scope="session")
def classifier(shared_folder):
    names = {0: "bad", 1: "fair", 2: "good"}
    labels = {"id2label": names, "label2id": {name: i for i, name in names.items()}}
    return str(shared_folder("integrated", lambda path: save_student(path, "ForSequenceClassification", **labels)))


@pytest.fixture(scope="session")
def tagger(shared_folder):
    names = {0: "O", 1: "B-PER", 2: "I-PER"}
    labels = {"id2label": names, "label2id": {name: i for i, name in names.items()}}
    return str(
        shared_folder("integrated-tagger", lambda path: save_student(path, "ForTokenClassification", seed=4, **labels))
    )
