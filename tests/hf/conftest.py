import pytest
from transformers import BertTokenizer

from .students import VOCABULARY


@pytest.fixture
def tokenizer():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
    words += [chr(ord("a") + i) for i in range(VOCABULARY - len(words))]
    return BertTokenizer(vocab={word: i for i, word in enumerate(words)})
