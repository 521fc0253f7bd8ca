"""The teacher's variances against loops, and that training does not change when its hidden states are scaled."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import BertForSequenceClassification

from ternarybert.recipe import PRESETS, Recipe
from ternarybert.student import expose_scores, make_student
from ternarybert.training import variances as module
from ternarybert.training.batches import Collator
from ternarybert.training.losses import distillation_losses
from ternarybert.training.variances import TeacherVariances, teacher_variances
from tests import tiny
from tests.training.test_trainer import make_trainer

WEIGHTS = {"hidden": 1.0, "attention": 1.0, "logits": 1.0, "labels": 0.0}


def tokenized(count: int) -> Dataset:
    ids = [[5 + (7 * i + j) % 50 for j in range(3 + i % 6)] for i in range(count)]
    return Dataset.from_dict(
        {"input_ids": ids, "attention_mask": [[1] * len(each) for each in ids], "length": [len(each) for each in ids]}
    )


def logits_of(outputs):
    return outputs.logits


def test_variances_by_hand(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE_ROWS", 8)
    monkeypatch.setattr(module, "_BATCH", 3)
    teacher, rows = expose_scores(tiny.bert(vocab_size=len(tiny.tokenizer()))), tokenized(16)
    ours = teacher_variances(teacher, rows, Collator(tiny.tokenizer()), logits_of)
    hidden, scores, logits = [[] for _ in range(3)], [[] for _ in range(2)], []
    for row in rows.select(range(0, 16, 2)):  # evenly spaced, one by one, without padding
        with torch.no_grad():
            ids = torch.tensor([row["input_ids"]])
            outputs = teacher(input_ids=ids, output_hidden_states=True, output_attentions=True)
        for seen, values in zip((*hidden, *scores), (*outputs.hidden_states, *outputs.attentions), strict=True):
            seen.append(values.double().numpy().ravel())
        logits.append(outputs.logits.double().numpy().ravel())
    assert ours.hidden == pytest.approx([np.concatenate(each).var() for each in hidden], rel=1e-5)
    assert ours.scores == pytest.approx([np.concatenate(each).var() for each in scores], rel=1e-5)
    assert ours.logits == pytest.approx(np.concatenate(logits).var(), rel=1e-5)
    assert len(ours.hidden) == 3
    assert ours.of_layers([2]) == TeacherVariances((ours.hidden[0], ours.hidden[2]), (ours.scores[1],), ours.logits)


def scaled(model: BertForSequenceClassification, factor: float) -> BertForSequenceClassification:
    """The same function with hidden states `factor` times as large: LayerNorms give more, what reads them takes less.

    With a power of two nothing is rounded differently.
    """
    encoder = model.bert
    with torch.no_grad():
        norms = [encoder.embeddings.LayerNorm]
        for layer in encoder.encoder.layer:
            attention = layer.attention
            norms += [attention.output.LayerNorm, layer.output.LayerNorm]
            for reader in (attention.self.query, attention.self.key, attention.self.value, layer.intermediate.dense):
                reader.weight.div_(factor)
            for writer in (attention.output.dense, layer.output.dense):  # added to hidden states
                writer.weight.mul_(factor)
                writer.bias.mul_(factor)
        for norm in norms:
            norm.weight.mul_(factor)
            norm.bias.mul_(factor)
        encoder.pooler.dense.weight.div_(factor)
    return model


def losses_of(factor: float, recipe: Recipe, data, tmp_path) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The loss terms of a fresh student, and the gradient of a query matrix in the original's units."""
    shape = {"vocab_size": len(tiny.tokenizer()), "layer_norm_eps": 1e-12}
    trainer = make_trainer(data, tmp_path / f"{factor}", recipe)
    teacher = expose_scores(scaled(tiny.bert(**shape), factor)).eval()
    student = make_student(scaled(tiny.bert(**shape), factor), recipe)
    inputs, wanted = tiny.batch(vocabulary=60), {"output_hidden_states": True, "output_attentions": True}
    rows = Dataset.from_dict(
        {
            "input_ids": inputs["input_ids"].tolist(),
            "attention_mask": inputs["attention_mask"].tolist(),
            "length": inputs["attention_mask"].sum(1).tolist(),
        }
    )
    variances = None
    if recipe.distill.normalize == "variance":
        variances = teacher_variances(teacher, rows, Collator(tiny.tokenizer()), logits_of)
    with torch.no_grad():
        theirs = trainer._outputs(teacher(**inputs, **wanted))
    ours = trainer._outputs(student.train()(**inputs, **wanted))
    mask = inputs["attention_mask"]
    terms = distillation_losses(trainer.head, ours, theirs, mask, recipe.distill, WEIGHTS, [1, 2], variances)
    sum(terms.values()).backward()
    gradient = student.bert.encoder.layer[0].attention.self.query.weight.grad / factor
    return {name: value.detach() for name, value in terms.items()}, gradient


@pytest.mark.parametrize("attention", ["scores", "maps"])
@pytest.mark.parametrize("method", ["twn", "lsq"])
def test_an_equivalent_teacher_gives_the_same_loss_and_gradient(data, tmp_path, attention, method):
    settings = {"distill.normalize": "variance", "distill.attention_loss": attention, "weight.method": method}
    recipe = PRESETS["default"].override(settings)
    (terms, gradient), (others, other) = (losses_of(factor, recipe, data, tmp_path) for factor in (1.0, 8.0))
    for name, value in terms.items():
        torch.testing.assert_close(others[name], value, rtol=1e-6, atol=0)
    torch.testing.assert_close(other, gradient, rtol=1e-4, atol=1e-7)
    assert float(gradient.abs().max()) > 1e-4


def test_with_plain_squared_errors_it_does_not(data, tmp_path):
    (terms, _), (others, _) = (losses_of(factor, PRESETS["default"], data, tmp_path) for factor in (1.0, 8.0))
    assert float(others["hidden"]) == pytest.approx(64 * float(terms["hidden"]), rel=1e-5)


def test_a_regressions_logits_are_relative_too(data, tmp_path):
    settings = {"distill.normalize": "variance"}
    trainer = make_trainer(data, tmp_path, PRESETS["default"].override(settings))
    student, teacher = (trainer._outputs(tiny.bert(seed, num_labels=1)(**tiny.batch())) for seed in (0, 1))

    class Regression:
        regression = True

    class Half:
        task = Regression()

        def counted(self, mask, labels):
            return mask

        def loss_pred(self, ours, theirs, mask, reduction):
            return (ours - theirs).square().mean()

    only = {"hidden": 0.0, "attention": 0.0, "logits": 1.0}
    variances, mask = TeacherVariances((), (), 4.0), tiny.batch()["attention_mask"]
    relative, plain = (
        distillation_losses(Half(), student, teacher, mask, trainer.recipe.distill, only, [], each)["logits"]
        for each in (variances, None)
    )
    assert relative == plain / 4
