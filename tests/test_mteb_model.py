"""The real mteb runs a packed model, offline, on made-up tasks, and gets the figures that we get."""

import mteb
import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.models_protocols import EncoderProtocol

from ternarybert.data.embedding import cosines
from ternarybert.data.metrics import spearman
from ternarybert.errors import UnsupportedModelError
from ternarybert.mteb_model import MtebModel
from ternarybert.runtime import load
from tests.embedders import PROMPTS, packed_embedder
from tests.runtime.folders import save_student
from tests.training.conftest import rows

FIRST = rows(24)["text"]
SECOND = [f"i hated {text}" for text in reversed(FIRST)]
SCORES = [float(i % 6) for i in range(24)]


class MadeSts(AbsTaskSTS):
    """Made pairs, from no hub."""

    metadata = TaskMetadata(
        name="MadeSts",
        description="Made pairs.",
        dataset={"path": "made/sts", "revision": "1"},
        type="STS",
        category="t2t",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="cosine_spearman",
    )
    min_score, max_score = 0, 5

    def load_data(self, **_):
        made = Dataset.from_dict({"sentence1": FIRST, "sentence2": SECOND, "score": SCORES})
        self.dataset, self.data_loaded = DatasetDict({"test": made}), True


@pytest.fixture(autouse=True)
def no_cache_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return packed_embedder(tmp_path_factory.mktemp("mteb") / "small", settings={"prompts": PROMPTS}, max_length=48)


@pytest.mark.filterwarnings("default")
def test_mteb_gives_our_figure(folder):
    result = mteb.evaluate(MtebModel(folder), MadeSts(), cache=None)
    found = result.task_results[0].scores["test"][0]["cosine_spearman"]
    with load(folder) as model:
        expected = spearman(cosines(model.encode(FIRST), model.encode(SECOND)), SCORES)
    assert found == pytest.approx(expected, abs=5e-3)
    assert result.model_name == "ternarybert/small"


def test_the_protocol_is_fulfilled(folder):
    model = MtebModel(folder)
    assert isinstance(model, EncoderProtocol)
    batches = [{"text": FIRST[:2]}, {"text": FIRST[2:3]}]
    np.testing.assert_array_equal(model.encode(batches, prompt_type="query"), model.model.encode_query(FIRST[:3]))
    np.testing.assert_array_equal(model.encode(batches), model.model.encode(FIRST[:3]))
    vectors = model.encode(batches)
    np.testing.assert_allclose(
        model.similarity_pairwise(vectors, vectors[::-1]), np.diag(model.similarity(vectors, vectors[::-1])), atol=1e-6
    )


def test_other_models_are_refused(tmp_path):
    with pytest.raises(UnsupportedModelError, match="Model"):
        MtebModel(save_student(tmp_path / "plain", "Model"))
