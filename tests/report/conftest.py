import pytest

from . import world


@pytest.fixture
def folder(tmp_path):
    return world.save(tmp_path / "small", world.metrics())
