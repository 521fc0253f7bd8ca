import pytest

from ternarybert.augment import MaskedModel
from tests.augment import language
from tests.augment.circle import circle
from tests.training.conftest import data, teacher  # fixtures

__all__ = ["data", "teacher"]


@pytest.fixture(scope="session")
def tokenizer():
    return language.tokenizer()


@pytest.fixture(scope="session")
def model(tokenizer):
    return language.train(tokenizer)


@pytest.fixture(scope="session")
def masked(model, tokenizer):
    return MaskedModel(model, tokenizer, "made")


@pytest.fixture(scope="session")
def masked_folder(model, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def neighbours():
    return circle()
