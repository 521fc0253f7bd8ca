"""Random networks of any shape, made in NumPy: what a packed folder would give, without one."""

from itertools import pairwise

import numpy as np

from ternarybert.packed import PackedTensor
from ternarybert.packed.codec import Coding
from ternarybert.runtime.network import Batch, Function, Layer, Linear, Network, Norm, Range, Sizes

VOCABULARY = 23


def make_network(
    seed=0,
    *,
    hidden=24,
    heads=3,
    intermediate=40,
    layers=2,
    positions=80,
    first_position=0,
    types=2,
    weight_bits=2,
    word_bits=2,
    levels="linear",
    packing="plain",
    rows=False,
    activation_bits=8,
    range=Range.TOKEN,
    symmetric=False,
    clip=None,
    function=Function.GELU,
    dense=True,
    dense_function=Function.TANH,
    dense_quantized=True,
    head=3,
    bias=True,
    norm_eps=1e-12,
):
    rng = np.random.default_rng(seed)

    def floats(*shape, std=0.3):
        return (std * rng.standard_normal(shape)).astype(np.float32)

    def matrix(n, k, bits=weight_bits):
        if bits == 32:
            return floats(n, k)
        coding = Coding(bits, levels if bits in (3, 4) else "linear", packing if bits == 2 else "plain")
        codes = coding.alphabet[rng.integers(0, len(coding.alphabet), (n, k), dtype=np.uint8)]
        scale = (0.5 + rng.random(n if rows else 1)) * 0.6 / np.abs(coding.alphabet).max()
        return PackedTensor.pack(codes, scale, bits=bits, levels=coding.levels, packing=coding.packing)

    def linear(n, k, bits=weight_bits):
        return Linear(matrix(n, k, bits), floats(n, std=0.1) if bias else None)

    def norm():
        return Norm(1 + floats(hidden, std=0.1), floats(hidden, std=0.1))

    made = tuple(
        Layer(
            query=linear(hidden, hidden),
            key=linear(hidden, hidden),
            value=linear(hidden, hidden),
            attention_output=linear(hidden, hidden),
            attention_norm=norm(),
            up=linear(intermediate, hidden),
            down=linear(hidden, intermediate),
            output_norm=norm(),
        )
        for _ in np.arange(layers)
    )
    return Network(
        sizes=Sizes(
            vocabulary=VOCABULARY,
            hidden=hidden,
            heads=heads,
            intermediate=intermediate,
            layers=layers,
            positions=positions,
            first_position=first_position,
            types=types,
            dense=hidden if dense else 0,
            head=head,
        ),
        function=function,
        norm_eps=norm_eps,
        activation_bits=activation_bits,
        range=range,
        symmetric=symmetric,
        clip=clip,
        word=matrix(VOCABULARY, hidden, word_bits),
        position=floats(positions, hidden),
        type=floats(types, hidden) if types else None,
        embedding_norm=norm(),
        layers=made,
        # A pooler that is not quantized is a head of another family, whose weights are floats.
        dense=linear(hidden, hidden, weight_bits if dense_quantized else 32) if dense else None,
        dense_function=dense_function,
        dense_quantized=dense_quantized and activation_bits != 32,
        head=linear(head, hidden, 32) if head else None,
    )


def make_batch(network, lengths, seed=0):
    rng = np.random.default_rng(seed)
    ids = [rng.integers(0, VOCABULARY, n, dtype=np.int32) for n in lengths]
    kinds = max(1, network.sizes.types)
    return Batch.of(ids, [rng.integers(0, kinds, n, dtype=np.int32) for n in lengths])


def split(batch):
    """The sequences of a batch, each as a batch of its own."""
    starts = batch.starts()
    parts = [slice(*ends) for ends in pairwise(starts)]
    return [Batch.of([batch.ids[part]], None if batch.types is None else [batch.types[part]]) for part in parts]
