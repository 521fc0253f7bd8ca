"""The teacher's remembered outputs are the teacher's outputs."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from ternarybert.data import GLUE, SQUAD, SquadData
from ternarybert.recipe import PRESETS
from ternarybert.student import expose_scores
from ternarybert.training import teacher_cache as memory
from ternarybert.training.batches import LENGTH, Collator, tokenize, tokenize_questions
from ternarybert.training.heads import head_of
from ternarybert.training.teacher_cache import ROW_NUMBER, TeacherMemory, fits, remember
from tests import tiny

RECIPE, HEAD = PRESETS["default"], head_of(GLUE["mrpc"])


@pytest.fixture
def numbered(data):
    rows = tokenize(data, tiny.tokenizer()).train
    return rows.add_column(ROW_NUMBER, list(range(len(rows))))


@pytest.fixture
def teacher():
    return expose_scores(tiny.bert()).eval()


def arguments(**changes):
    given = {
        "train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "max_steps": -1,
        "num_train_epochs": 3,
        "world_size": 1,
    }
    return SimpleNamespace(**given | changes)


def test_outputs_are_the_teachers_within_half_precision(teacher, numbered):
    collate = Collator(tiny.tokenizer())
    remembered = TeacherMemory(teacher, numbered, collate, HEAD)
    batch = collate([numbered[i] for i in (5, 0, 3)])
    rows, mask = batch.pop(ROW_NUMBER), batch["attention_mask"].bool()
    batch.pop("labels", None)
    with torch.no_grad():
        expected = teacher(**batch, output_hidden_states=True, output_attentions=True)
    for _ in range(2):  # computed, then recalled
        target = remembered(rows, batch["input_ids"].shape[1])
        torch.testing.assert_close(target.logits, expected.logits)
        for ours, theirs in zip(target.hidden_states, expected.hidden_states, strict=True):
            torch.testing.assert_close(ours[mask], theirs[mask], rtol=1e-3, atol=1e-5)
            assert not ours[~mask].any()
        pairs = (mask[:, None, :, None] & mask[:, None, None, :]).expand_as(target.attentions[0])
        for ours, theirs in zip(target.attentions, expected.attentions, strict=True):
            torch.testing.assert_close(ours[pairs], theirs[pairs], rtol=1e-3, atol=1e-5)
            assert not ours[~pairs].any()


def test_what_is_remembered_does_not_depend_on_the_order(teacher, numbered):
    one, other = (TeacherMemory(teacher, numbered, Collator(tiny.tokenizer()), HEAD) for _ in range(2))
    width = max(numbered[LENGTH])
    every = torch.arange(len(numbered))
    for row in every:
        one(row[None], width)
    for ours, theirs in zip(one(every, width).hidden_states, other(every.flip(0), width).hidden_states, strict=True):
        assert torch.equal(ours, theirs.flip(0))


def test_numbers_beyond_half_precision_are_kept_whole():
    large = torch.tensor([1.0, 1e6])
    assert torch.equal(memory._half(large), large)
    assert memory._half(large[:1]).dtype is torch.float16


def test_only_what_fits_is_remembered(teacher, numbered, monkeypatch):
    lengths = numbered[LENGTH]
    config = teacher.config
    per_layer = [config.hidden_size * n for n in lengths], [config.num_attention_heads * n * n for n in lengths]
    needed = 2 * ((config.num_hidden_layers + 1) * sum(per_layer[0]) + config.num_hidden_layers * sum(per_layer[1]))
    monkeypatch.setattr(memory, "_memory", lambda: 4 * needed)
    assert fits(config, lengths)
    monkeypatch.setattr(memory, "_memory", lambda: 4 * needed - 4)
    assert not fits(config, lengths)
    assert remember(teacher, numbered, Collator(tiny.tokenizer()), arguments(), RECIPE, HEAD) is None


def test_only_where_it_pays(teacher, numbered):
    collate = Collator(tiny.tokenizer())
    assert remember(teacher, numbered, collate, arguments(), RECIPE, HEAD) is not None
    assert remember(teacher, numbered, collate, arguments(num_train_epochs=1), RECIPE, HEAD) is None
    assert remember(teacher, numbered, collate, arguments(max_steps=1), RECIPE, HEAD) is None
    known = TeacherMemory(teacher, numbered, collate, HEAD)  # of an earlier student
    assert remember(teacher, numbered, collate, arguments(max_steps=1), RECIPE, HEAD, known) is known
    unmasked = dataclasses.replace(RECIPE, distill=dataclasses.replace(RECIPE.distill, masked=False))
    assert remember(teacher, numbered, collate, arguments(), unmasked, HEAD) is None


def test_logits_of_tokens_are_padded_to_the_batch():
    task = dataclasses.replace(SQUAD["squad"], max_length=40)
    windows = tokenize_questions(SquadData(task, tiny.questions(40), {}), tiny.tokenizer()).train
    windows = windows.add_column(ROW_NUMBER, list(range(len(windows))))
    teacher, collate = expose_scores(tiny.answerer()).eval(), Collator(tiny.tokenizer())
    remembered = TeacherMemory(teacher, windows, collate, head_of(task))
    batch = collate([windows[i] for i in (0, 4, 9)])
    rows, mask = batch.pop(ROW_NUMBER), batch["attention_mask"].bool()
    batch.pop("labels")
    with torch.no_grad():
        expected = head_of(task).logits(teacher(**batch))
    target = remembered(rows, batch["input_ids"].shape[1])
    real = mask[:, None, :].expand_as(expected)
    torch.testing.assert_close(target.logits[real], expected[real])
    assert not target.logits[~real].any()


def test_long_rows_are_computed_in_smaller_groups(teacher, numbered):
    def group(length):
        rows = numbered.remove_columns(LENGTH).add_column(LENGTH, [length] * len(numbered))
        return TeacherMemory(teacher, rows, Collator(tiny.tokenizer()), HEAD).group

    assert [group(length) for length in (16, 128, 256, 384, 2000)] == [32, 32, 8, 3, 1]
