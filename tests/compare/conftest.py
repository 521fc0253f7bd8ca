import pytest

from ternarybert.training.teacher import Teacher
from tests.training.conftest import data, teacher

__all__ = ["data", "shared", "teacher"]


@pytest.fixture
def shared(data, teacher) -> Teacher:
    """A tiny teacher and made reviews."""
    return Teacher.load(teacher, data)
