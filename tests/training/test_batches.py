"""The batches of training and of evaluation: which rows, in which order, and how many at once."""

from itertools import chain

import datasets
import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForSequenceClassification

from ternarybert.training.batches import LENGTH, Collator, TrainingBatches, predict_logits, similar_lengths
from ternarybert.training.heads.classification import tokenize_texts
from tests import tiny


@given(st.lists(st.integers(1, 128), min_size=1, max_size=300), st.integers(1, 16), st.integers(0, 3))
def test_every_row_once(lengths, batch, seed):
    rows = similar_lengths(lengths, batch, seed)
    assert sorted(rows) == list(range(len(lengths)))
    assert rows == similar_lengths(lengths, batch, seed)


def test_batches_are_of_similar_length_and_in_no_order():
    lengths = torch.randint(1, 129, (2000,)).tolist()
    batches = [[lengths[i] for i in batch] for batch in torch.tensor(similar_lengths(lengths, 32, 1)).split(32)]
    padded = sum(max(batch) * len(batch) for batch in batches)
    assert padded < 1.05 * sum(lengths)
    longest = [max(batch) for batch in batches]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)


def made(count=64, **more):
    rows = Dataset.from_dict({"input_ids": [[i] for i in range(count)], LENGTH: [1 + i % 7 for i in range(count)]})
    return TrainingBatches(rows, Collator(tiny.tokenizer()), **{"micro_batch": 8, "seed": 1} | more)


def test_epochs_differ():
    assert made().steps(0) == made().steps(0) != made().steps(1)


@pytest.mark.parametrize("count", [64, 61, 57, 3])
@pytest.mark.parametrize(("micro_batch", "accumulation", "processes"), [(4, 2, 1), (2, 4, 1), (4, 1, 2), (2, 2, 2)])
def test_a_step_has_the_same_rows_however_it_is_split(count, micro_batch, accumulation, processes):
    """Of several processes the last step of an epoch is filled with the first rows, so that all have as many."""
    shape = {"micro_batch": micro_batch, "accumulation": accumulation, "processes": processes}
    whole = made(count)
    parts = [made(count, **shape, process=process) for process in range(processes)]
    assert {part.steps_per_epoch for part in parts} == {whole.steps_per_epoch} == {len(whole.steps(2))}
    for step, together in enumerate(zip(*(part.steps(2) for part in parts), strict=True)):
        rows, wanted = sorted(chain(*together)), sorted(whole.steps(2)[step])
        assert len({len(own) for own in together}) == 1
        if step < whole.steps_per_epoch - 1 or processes == 1:
            assert rows == wanted
        else:
            assert set(wanted) <= set(rows)
            assert len(rows) < len(wanted) + micro_batch * processes


def test_micro_batches_are_padded_one_by_one():
    batches = made(61, micro_batch=4, accumulation=2)
    steps = list(batches.epoch(0))
    assert [[len(batch["input_ids"]) for batch in step] for step in steps] == [[4, 4]] * 7 + [[4, 1]]
    seen = [row for step in steps for batch in step for row in batch["input_ids"].flatten().tolist()]
    assert seen == list(chain(*batches.steps(0)))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_resumed_run_continues_with_the_rows_of_its_epoch(processes):
    batches = made(64, micro_batch=4, processes=processes)
    whole, rest = list(batches.epoch(2)), list(batches.epoch(2, skip=1))
    assert len(rest) == batches.steps_per_epoch - 1
    for (ours,), (theirs,) in zip(rest, whole[1:], strict=True):
        assert torch.equal(ours["input_ids"], theirs["input_ids"])
    assert list(batches.epoch(2, skip=batches.steps_per_epoch)) == []


@pytest.mark.parametrize("enabled", [True, False])
def test_tokenizing_restores_the_settings_of_datasets(data, enabled):
    was = datasets.are_progress_bars_disabled(), datasets.is_caching_enabled()
    try:
        (datasets.enable_progress_bars if enabled else datasets.disable_progress_bars)()
        (datasets.enable_caching if enabled else datasets.disable_caching)()
        tokenize_texts(data, tiny.tokenizer())
        assert datasets.are_progress_bars_disabled() != enabled
        assert datasets.is_caching_enabled() == enabled
    finally:
        (datasets.disable_progress_bars if was[0] else datasets.enable_progress_bars)()
        (datasets.enable_caching if was[1] else datasets.disable_caching)()


def test_long_rows_are_evaluated_in_smaller_batches(data, teacher, monkeypatch):
    """In any order and number of batches the logits are the rows'; short rows stay together."""
    model = AutoModelForSequenceClassification.from_pretrained(teacher).eval()
    dev = tokenize_texts(data, tiny.tokenizer()).evals["dev"]
    whole, shapes = predict_logits(model, dev, tiny.tokenizer()), []
    model.register_forward_pre_hook(lambda _, args, inputs: shapes.append(inputs["input_ids"].shape), with_kwargs=True)
    for pairs, expected in (
        (9 * 11**2, [(9, 11), (4, 16), (2, 16), (2, 21), (2, 21), (1, 21)]),
        (1, [(1, length) for length in sorted(dev["length"])]),
        (10**9, [(20, 21)]),
    ):
        monkeypatch.setattr("ternarybert.training.batches._CACHED_PAIRS", pairs)
        shapes.clear()
        np.testing.assert_allclose(predict_logits(model, dev, tiny.tokenizer()), whole, rtol=1e-5, atol=1e-6)
        assert [tuple(shape) for shape in shapes] == expected
