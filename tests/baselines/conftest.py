import pytest

from ternarybert.distill.classroom import Classroom
from ternarybert.distill.heads import head_of
from ternarybert.distill.models import load_tokenizer, load_trained
from ternarybert.distill.ternarize import check_data
from ternarybert.student import expose_scores
from tests.distill.conftest import data, teacher

__all__ = ["data", "room", "teacher"]


@pytest.fixture
def room(data, teacher) -> Classroom:
    """A tiny teacher and made reviews."""
    network = expose_scores(load_trained(teacher, head_of(data.task)))
    return Classroom.open(network, check_data(data, network), load_tokenizer(teacher))
