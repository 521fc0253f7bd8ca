import pytest

from ternarybert.packed import write

from .models import random_model


@pytest.fixture
def model():
    return random_model()


@pytest.fixture
def folder(tmp_path, model):
    write(tmp_path / "packed", model)
    return tmp_path / "packed"
