from types import SimpleNamespace

import torch
from accelerate import skip_first_batches
from accelerate.data_loader import BatchSamplerShard, DataLoaderShard
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler

from ternarybert.training.trainer import SimilarLengths, TellEpoch


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


def test_a_resumed_run_of_several_processes_knows_its_epoch():
    """As Trainer resumes the first of two processes in the third epoch, one step in."""
    rows = list(range(64))
    uninterrupted = SimilarLengths(rows, 8, seed=1)
    uninterrupted.set_epoch(2)
    wanted = [row for batch in torch.tensor(list(uninterrupted)).split(4)[::2] for row in batch.tolist()]

    sampler = SimilarLengths(rows, 8, seed=1)
    shared = BatchSamplerShard(BatchSampler(sampler, 4, drop_last=False), num_processes=2, process_index=0)
    loader = skip_first_batches(DataLoaderShard(rows, batch_sampler=shared), 1)
    TellEpoch(sampler).on_epoch_begin(None, SimpleNamespace(epoch=2.125), None)
    loader.set_epoch(2)
    assert torch.cat(list(loader)).tolist() == wanted[4:]
