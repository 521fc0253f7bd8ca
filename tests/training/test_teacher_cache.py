"""The teacher's cached outputs are the teacher's outputs."""

import dataclasses

import pytest
import torch

from ternarybert.data import SQUAD, TaskData, glue_task
from ternarybert.recipe import PRESETS
from ternarybert.student import expose_scores
from ternarybert.training import teacher_cache
from ternarybert.training.batches import LENGTH, Collator
from ternarybert.training.heads import head_of
from ternarybert.training.heads.classification import tokenize_texts
from ternarybert.training.heads.question_answering import tokenize_questions
from ternarybert.training.teacher import Teacher
from ternarybert.training.teacher_cache import ROW_NUMBER, TeacherCache, fits_in_memory
from tests import tiny

RECIPE, HEAD = PRESETS["default"], head_of(glue_task("mrpc"))


@pytest.fixture
def numbered(data):
    rows = tokenize_texts(data, tiny.tokenizer()).train
    return rows.add_column(ROW_NUMBER, list(range(len(rows))))


@pytest.fixture
def teacher():
    return expose_scores(tiny.bert()).eval()


def test_outputs_are_the_teachers_within_half_precision(teacher, numbered):
    collate = Collator(tiny.tokenizer())
    cached = TeacherCache(teacher, numbered, collate, HEAD)
    batch = collate([numbered[i] for i in (5, 0, 3)])
    rows, mask = batch.pop(ROW_NUMBER), batch["attention_mask"].bool()
    batch.pop("labels", None)
    with torch.no_grad():
        expected = teacher(**batch, output_hidden_states=True, output_attentions=True)
    for _ in range(2):  # computed, then recalled
        target = cached(rows, batch["input_ids"].shape[1])
        torch.testing.assert_close(target.logits, expected.logits)
        for ours, theirs in zip(target.hidden_states, expected.hidden_states, strict=True):
            torch.testing.assert_close(ours[mask], theirs[mask], rtol=1e-3, atol=1e-5)
            assert not ours[~mask].any()
        pairs = (mask[:, None, :, None] & mask[:, None, None, :]).expand_as(target.attentions[0])
        for ours, theirs in zip(target.attentions, expected.attentions, strict=True):
            torch.testing.assert_close(ours[pairs], theirs[pairs], rtol=1e-3, atol=1e-5)
            assert not ours[~pairs].any()


def test_what_is_cached_does_not_depend_on_the_order(teacher, numbered):
    one, other = (TeacherCache(teacher, numbered, Collator(tiny.tokenizer()), HEAD) for _ in range(2))
    width = max(numbered[LENGTH])
    every = torch.arange(len(numbered))
    for row in every:
        one(row[None], width)
    for ours, theirs in zip(one(every, width).hidden_states, other(every.flip(0), width).hidden_states, strict=True):
        assert torch.equal(ours, theirs.flip(0))


def test_numbers_beyond_half_precision_are_kept_whole():
    large = torch.tensor([1.0, 1e6])
    assert torch.equal(teacher_cache._half(large), large)
    assert teacher_cache._half(large[:1]).dtype is torch.float16


def test_only_what_fits_is_cached(teacher, data, numbered, monkeypatch):
    lengths = numbered[LENGTH]
    config = teacher.config
    per_layer = [config.hidden_size * n for n in lengths], [config.num_attention_heads * n * n for n in lengths]
    needed = 2 * ((config.num_hidden_layers + 1) * sum(per_layer[0]) + config.num_hidden_layers * sum(per_layer[1]))
    monkeypatch.setattr(teacher_cache, "_memory", lambda: 4 * needed)
    assert fits_in_memory(config, lengths)
    monkeypatch.setattr(teacher_cache, "_memory", lambda: 4 * needed - 4)
    assert not fits_in_memory(config, lengths)
    shared = Teacher.of(teacher, data, tiny.tokenizer())
    assert shared.cache_for(RECIPE, Collator(tiny.tokenizer()), epochs=3) is None


def test_only_where_it_helps(teacher, data):
    def cached(epochs, recipe=RECIPE, *, earlier=False):
        shared = Teacher.of(teacher, data, tiny.tokenizer())
        if earlier:
            shared.fill_cache()
        before = shared.cache
        cache = shared.cache_for(recipe, Collator(tiny.tokenizer()), epochs)
        assert cache is shared.cache or cache is None
        assert not earlier or cache is before or cache is None
        return cache is not None

    assert cached(3)
    assert not cached(1)
    assert not cached(0.1)
    assert cached(0.1, earlier=True)
    unmasked = dataclasses.replace(RECIPE, distill=dataclasses.replace(RECIPE.distill, masked=False))
    assert not cached(3, unmasked)


def test_logits_of_tokens_are_padded_to_the_batch():
    task = dataclasses.replace(SQUAD["squad"], max_length=40)
    windows = tokenize_questions(TaskData(task, tiny.questions(40), {}), tiny.tokenizer()).train
    windows = windows.add_column(ROW_NUMBER, list(range(len(windows))))
    teacher, collate = expose_scores(tiny.answerer()).eval(), Collator(tiny.tokenizer())
    cached = TeacherCache(teacher, windows, collate, head_of(task))
    batch = collate([windows[i] for i in (0, 4, 9)])
    rows, mask = batch.pop(ROW_NUMBER), batch["attention_mask"].bool()
    batch.pop("labels")
    with torch.no_grad():
        expected = head_of(task).logits(teacher(**batch))
    target = cached(rows, batch["input_ids"].shape[1])
    real = mask[:, None, :].expand_as(expected)
    torch.testing.assert_close(target.logits[real], expected[real])
    assert not target.logits[~real].any()


def test_long_rows_are_computed_in_smaller_groups(teacher, numbered):
    def group(length):
        rows = numbered.remove_columns(LENGTH).add_column(LENGTH, [length] * len(numbered))
        return TeacherCache(teacher, rows, Collator(tiny.tokenizer()), HEAD).group

    assert [group(length) for length in (16, 128, 256, 384, 2000)] == [32, 32, 8, 3, 1]
