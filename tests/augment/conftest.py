import pytest
from transformers import BertForMaskedLM

from ternarybert.augment import MaskedModel
from tests.augment import language
from tests.augment.circle import circle
from tests.training.conftest import data, teacher  # fixtures

__all__ = ["data", "teacher"]


@pytest.fixture(scope="session")
def tokenizer():
    return language.tokenizer()


@pytest.fixture(scope="session")
def masked_folder(tokenizer, shared_folder):
    """The trained model and its tokenizer, for all workers; only read."""

    def fill(folder):
        language.train(tokenizer).save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return shared_folder("masked", fill)


@pytest.fixture(scope="session")
def model(masked_folder):
    return BertForMaskedLM.from_pretrained(masked_folder).eval()


@pytest.fixture(scope="session")
def masked(model, tokenizer):
    return MaskedModel(model, tokenizer, "made")


@pytest.fixture
def neighbors():
    return circle()
