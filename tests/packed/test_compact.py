"""A smaller folder gives the same answers, in our runtime and in sentence-transformers."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import ternarybert.hf
from ternarybert import packed
from ternarybert.errors import OptionError, UnsupportedModelError
from ternarybert.packed.compact import compact_tokenizer, trim_positions
from ternarybert.runtime import load
from tests.cli.shell import command
from tests.embedders import TEXTS, packed_embedder
from tests.runtime.folders import save_student


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return packed_embedder(tmp_path_factory.mktemp("compact") / "model", dense=20, max_length=24)


def test_the_command_keeps_every_vector(folder, tmp_path):
    small = tmp_path / "small"
    code, _, err = command("pack", folder, small, "--dense", "--positions", 24, "--compact-tokenizer")
    assert code == 0, err
    assert not (small / "tokenizer.json").exists() and (small / "2_Dense" / "model.safetensors").is_file()
    assert json.loads((small / "config.json").read_text())["max_position_embeddings"] == 24
    with load(folder) as before, load(small) as after:
        expected = before.encode(TEXTS)
        np.testing.assert_array_equal(after.encode(TEXTS), expected)
        assert after.max_length == 24
    np.testing.assert_allclose(SentenceTransformer(str(small)).encode(TEXTS), expected, rtol=0, atol=1e-6)


def test_unpacking_keeps_the_modules(folder, tmp_path):
    code, _, err = command("unpack", folder, tmp_path / "plain")
    assert code == 0, err
    vectors = SentenceTransformer(str(tmp_path / "plain")).encode(TEXTS)
    assert vectors.shape == (len(TEXTS), 20) and ternarybert.packed.embedder_modules.has_modules(tmp_path / "plain")


def test_a_folder_with_modules_can_be_replaced(folder, tmp_path):
    """Its subfolders are our own; others are never deleted."""
    small = tmp_path / "small"
    for more in ((), ("--force",)):
        code, _, err = command("pack", folder, small, *more)
        assert code == 0, err
    (small / "2_Dense" / "notes.txt").write_text("mine")
    code, _, err = command("pack", folder, small, "--force")
    assert code == 2 and "2_Dense" in err and (small / "2_Dense" / "notes.txt").is_file()


def test_positions_of_a_family_that_starts_behind_padding(tmp_path):
    made = save_student(tmp_path / "model", "Model", "Roberta")
    trimmed = trim_positions(packed.read(made), 16)
    trimmed.check()
    assert trimmed.config["max_position_embeddings"] == 18
    with pytest.raises(OptionError, match=r"64.*65"):
        trim_positions(packed.read(made), 65)


def test_other_tokenizers_are_refused(folder, tmp_path):
    whole = json.loads((folder / "tokenizer.json").read_text())
    for change in ({"normalizer": None}, {"pre_tokenizer": {"type": "Whitespace"}}, {"model": {"type": "BPE"}}):
        (tmp_path / "tokenizer.json").write_text(json.dumps(whole | change))
        with pytest.raises(UnsupportedModelError, match=r"tokenizer\.json"):
            compact_tokenizer(tmp_path)
