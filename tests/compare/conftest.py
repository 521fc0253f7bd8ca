import pytest

from ternarybert.student import expose_scores
from ternarybert.training.heads import head_of
from ternarybert.training.models import load_tokenizer, load_trained
from ternarybert.training.teacher import Classroom
from ternarybert.training.ternarize import check_data
from tests.training.conftest import data, teacher

__all__ = ["data", "room", "teacher"]


@pytest.fixture
def room(data, teacher) -> Classroom:
    """A tiny teacher and made reviews."""
    network = expose_scores(load_trained(teacher, head_of(data.task)))
    return Classroom.open(network, check_data(data, network), load_tokenizer(teacher))
