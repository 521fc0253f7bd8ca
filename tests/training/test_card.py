"""Model cards as the hub reads them: where the model comes from, its license, its data and its scores."""

import pytest
from huggingface_hub import ModelCard

from ternarybert.data.table import load_table
from ternarybert.recipe import Recipe
from ternarybert.training.card import metadata_of_origin, read_metadata
from ternarybert.training.finetune import finetune
from ternarybert.training.options import TrainingOptions
from ternarybert.training.ternarize import ternarize
from tests import tiny

QUICK = TrainingOptions(device="cpu", evaluations=1, max_steps=1)
CARD = """---
license: mit
language: [en, de]
datasets: [stanfordnlp/imdb]
base_model: google-bert/bert-base-uncased
pipeline_tag: fill-mask
---
# A teacher
"""


@pytest.fixture
def data(tmp_path):
    rows = "".join(f"the film was {word},{label}\n" for word, label in (("good", "pos"), ("bad", "neg")) * 8)
    (tmp_path / "reviews.csv").write_text(f"text,label\n{rows}")
    return load_table(tmp_path / "reviews.csv", tmp_path / "reviews.csv")


def test_what_the_teachers_card_says_stays_true(data, tmp_path):
    encoder = tmp_path / "encoder"
    tiny.save(encoder)
    (encoder / "README.md").write_text(CARD)
    finetune(encoder, data, tmp_path / "teacher", Recipe(), QUICK)
    report = ternarize(tmp_path / "teacher", data, tmp_path / "small", None, QUICK)
    for name in ("teacher", "small"):
        card = ModelCard.load(tmp_path / name / "README.md").data
        assert (card.license, card.language, card.datasets) == ("mit", ["en", "de"], ["stanfordnlp/imdb"])
        assert card.base_model == "google-bert/bert-base-uncased"
        assert card.pipeline_tag == "text-classification"
        assert card.model_name == name
    assert card.base_model_relation == "quantized"
    assert card.library_name == "ternarybert" and set(card.tags) >= {"ternarybert", "quantization", "2-2-8"}
    measured = {(one.dataset_split, one.metric_name): one.metric_value for one in card.eval_results}
    assert measured == {
        (part, metric): round(value, 4) for part, scores in report.best.sets.items() for metric, value in scores.items()
    }
    assert {one.dataset_name for one in card.eval_results} == {report.task}
    assert "base_model_relation" not in read_metadata(tmp_path / "teacher")


def test_known_data_sets_have_their_names(tmp_path):
    from ternarybert.training.card import metadata
    from ternarybert.training.report import RunReport, StepEvaluation

    best = StepEvaluation(1, {"matthews": 50.0}, {"dev": {"matthews": 50.0}})
    for task, data_set in (("cola", "nyu-mll/glue"), ("squad_v2", "rajpurkar/squad_v2")):
        report = RunReport(task, "matthews", "best", best, best, (best,), 1, 1.0, 1, 0, {}, bits="2-2-8")
        origin = {"base_model": "user/teacher", "datasets": "user/texts"}
        text = metadata("m", {"architectures": ["BertForQuestionAnswering"]}, report, origin, quantized=True)
        card = ModelCard(f"---\n{text}\n---\n").data
        assert card.datasets == ["user/texts", data_set] and card.pipeline_tag == "question-answering"
        (result,) = card.eval_results
        assert (result.dataset_type, result.metric_type) == (data_set, "matthews_correlation")


@pytest.mark.parametrize("card", [None, "no metadata", "---\nlicense: [\n---\n", b"\xff\xfe"])
def test_a_card_that_says_nothing_is_no_error(tmp_path, card):
    if card is not None:
        (tmp_path / "README.md").write_bytes(card if isinstance(card, bytes) else card.encode())
    assert metadata_of_origin(tmp_path) == {}


def test_a_model_of_the_hub_is_named_even_without_its_card():
    assert metadata_of_origin("user/teacher") == {"base_model": "user/teacher"}  # tests have no network
