import pytest

from ternarybert.runtime import load

from .running import MODELS, RunningServer, folder_arguments, save_models


@pytest.fixture(scope="session")
def served_folder(shared_folder):
    """A folder with a packed model of every kind."""
    return shared_folder("served", save_models)


@pytest.fixture(scope="session")
def server(served_folder):
    """A server with all of them."""
    with RunningServer(*folder_arguments(served_folder)) as running:
        yield running


@pytest.fixture(scope="session")
def direct(served_folder):
    """The same models without a server."""
    return {name: load(served_folder / name, num_threads=1) for name in MODELS}
