"""What is timed."""

import numpy as np
import pytest

from ternarybert.bench.inputs import CHECK, RAGGED, lengths_of, make_tokens, read_inputs, write_inputs
from ternarybert.bench.random_model import SHAPES, ModelShape, multiply_adds
from ternarybert.errors import OptionError

CONFIG = {"vocab_size": 2000, "max_position_embeddings": 128}


def test_shapes():
    assert lengths_of("8x16", 128) == [16] * 8
    assert len(lengths_of(RAGGED, 128)) == 32
    for wrong in ("8", "0x16", "8x0", "x", "8x16x2", ""):
        with pytest.raises(OptionError, match=f"'{wrong}'"):
            lengths_of(wrong, 128)
    with pytest.raises(OptionError, match=r"1x129.*128"):
        lengths_of("1x129", 128)


def test_tokens_are_words_padded_with_zeros():
    tokens = make_tokens([3, 5, 1], 2000)
    assert tokens.lengths == [3, 5, 1]
    assert tokens.ids.shape == tokens.mask.shape == (3, 5)
    assert (tokens.ids[tokens.mask == 1] >= 1000).all()
    assert not tokens.ids[tokens.mask == 0].any()
    assert [len(sequence) for sequence in tokens.sequences()] == [3, 5, 1]
    assert np.array_equal(make_tokens([3, 5, 1], 2000).ids, tokens.ids)


def test_batches_survive_the_file(tmp_path):
    write_inputs(tmp_path / "inputs.npz", ("1x16", RAGGED), CONFIG)
    batches = read_inputs(tmp_path / "inputs.npz")
    assert set(batches) == {"1x16", RAGGED, CHECK}
    assert batches["1x16"].lengths == [16]


def test_multiply_adds_of_bert_base():
    """Eleven layers with 7 million multiply-adds a token; of the last, keys, values and one token's rest."""
    per_token = 4 * 768**2 + 2 * 768 * 3072
    last = 2 * 768**2 + 2 * 768 + (2 * 768**2 + 2 * 768 * 3072) + 768**2
    assert multiply_adds(SHAPES["base"], [1]) == 11 * (per_token + 2 * 768) + last
    assert multiply_adds(ModelShape(2, 2, 1, 3), [4]) == 4 * (16 + 12) + 2 * 16 * 2 + (4 * 8 + 16 + 8 + 12 + 4)
