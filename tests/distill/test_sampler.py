import torch
from hypothesis import given
from hypothesis import strategies as st

from ternarybert.distill.sampler import SimilarLengths


@given(st.lists(st.integers(1, 128), min_size=1, max_size=300), st.integers(1, 16), st.integers(0, 3))
def test_every_row_once(lengths, batch, epoch):
    sampler = SimilarLengths(lengths, batch, seed=7)
    sampler.set_epoch(epoch)
    rows = list(sampler)
    assert sorted(rows) == list(range(len(lengths)))
    assert rows == list(sampler)  # seed and epoch alone decide


def test_batches_are_of_similar_length_and_in_no_order():
    lengths = torch.randint(1, 129, (2000,)).tolist()
    sampler = SimilarLengths(lengths, 32, seed=1)
    batches = [[lengths[i] for i in batch] for batch in torch.tensor(list(sampler)).split(32)]
    padded = sum(max(batch) * len(batch) for batch in batches)
    assert padded < 1.05 * sum(lengths)
    longest = [max(batch) for batch in batches]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)


def test_epochs_differ():
    sampler = SimilarLengths(list(range(100)), 8, seed=1)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
