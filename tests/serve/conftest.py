import pytest

from ternarybert.runtime import load
from tests.runtime.folders import save_student

from .running import MODELS, RunningServer, folder_arguments, save_models


@pytest.fixture(scope="session")
def served_folder(shared_folder):
    """A folder with a packed model of every kind."""
    return shared_folder("served", save_models)


@pytest.fixture(scope="session")
def slow_folder(shared_folder):
    """An embedder of MiniLM's shape: hundreds of texts take it most of a second on any machine."""
    shape = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    return shared_folder("slow", lambda folder: save_student(folder, "Model", **shape))


@pytest.fixture(scope="session")
def server(served_folder):
    """A server with all of them."""
    with RunningServer(*folder_arguments(served_folder)) as running:
        yield running


@pytest.fixture(scope="session")
def direct(served_folder):
    """The same models without a server."""
    return {name: load(served_folder / name, num_threads=1) for name in MODELS}
