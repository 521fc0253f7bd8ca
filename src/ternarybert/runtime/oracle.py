"""The reference engine in slow and obvious NumPy: it runs a `Network` with the arithmetic of numerics.py.

It computes one sequence at a time, so that a result cannot depend on the rest of the batch. Shapes are in tokens n,
width d, heads h and head width d_h. The native engine gives the same bits; if the two differ, this one is right.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ternarybert import numerics
from ternarybert.errors import InputError, NonFiniteError
from ternarybert.numerics import F32, ActivationCodes, Array
from ternarybert.packed import PackedTensor
from ternarybert.runtime.network import (
    Batch,
    Floats,
    Function,
    Ints,
    Layer,
    Linear,
    Matrix,
    Network,
    Norm,
    Output,
    Range,
)


class Oracle:
    """Runs a network in NumPy."""

    kernel = "oracle"

    def __init__(self, network: Network) -> None:
        self.network, self.sizes = network, network.sizes

    def run(self, batch: Batch, output: Output, *, alone: bool = False) -> Floats:
        """The result of every sequence, one below the other; always on one thread."""
        batch.check()
        shape = self.sizes.shape(batch, output)
        types = np.zeros_like(batch.ids) if batch.types is None else batch.types
        starts = batch.starts()
        sequences = [slice(*ends) for ends in pairwise(starts)]
        for index, part in enumerate(sequences):
            self._check(index, batch.ids[part], types[part])
        with np.errstate(all="ignore"):  # infinities are checked where they matter
            parts = [self._output(self._encode(batch.ids[part], types[part]), output) for part in sequences]
        return _finite(np.concatenate(parts).reshape(shape))

    def close(self) -> None:
        """Does nothing: there is no native memory."""

    def _check(self, index: int, ids: Ints, types: Ints) -> None:
        sizes = self.sizes
        if len(ids) > sizes.max_tokens:
            raise InputError(f"sequence {index} has {len(ids)} tokens; the model takes {sizes.max_tokens}")
        if ids.min() < 0 or ids.max() >= sizes.vocabulary:
            raise InputError(f"sequence {index} has a token id that is not in 0 .. {sizes.vocabulary - 1}")
        if types.min() < 0 or types.max() >= max(1, sizes.types):
            raise InputError(f"sequence {index} has a token type that the model does not have")

    def _encode(self, ids: Ints, types: Ints) -> Floats:
        """The last hidden states of one sequence, (n, d)."""
        network, sizes = self.network, self.sizes
        x = _rows(network.word, ids)
        if network.type is not None:
            x = x + network.type[types]
        x = x + network.position[sizes.first_position :][: len(ids)]
        x = self._norm(x, network.embedding_norm)
        for layer in network.layers:
            x = self._layer(x, layer)
        return x

    def _output(self, x: Floats, output: Output) -> Floats:
        network = self.network
        if output == Output.HIDDEN:
            return x
        if output == Output.MEAN:
            return np.asarray((_sum_in_order(x) / len(x)).astype(F32))[None]
        if output == Output.TOKEN_LOGITS:
            return self._linear(x, network.head, None)
        first = x[:1]
        if output == Output.FIRST:
            return first
        if network.dense is not None:
            quantized = self._quantized_input(first) if network.dense_quantized else None
            first = _apply(network.dense_function, self._linear(first, network.dense, quantized))
        return first if output == Output.DENSE else self._linear(first, network.head, None)

    def _layer(self, x: Floats, layer: Layer) -> Floats:
        x_codes = self._quantized_input(x)
        q, k, v = (self._linear(x, linear, x_codes) for linear in (layer.query, layer.key, layer.value))
        context = self._attention(*(self._heads(y) for y in (q, k, v)))
        attended = self._linear(context, layer.attention_output, self._quantized_input(context))
        x = self._norm(attended + x, layer.attention_norm)
        middle = _apply(self.network.function, self._linear(x, layer.up, self._quantized_input(x)))
        down = self._linear(middle, layer.down, self._quantized_input(middle))
        return self._norm(down + x, layer.output_norm)

    def _attention(self, q: Floats, k: Floats, v: Floats) -> Floats:
        """Context (n, d) from queries, keys and values, (h, n, d_h)."""
        scaling = q.shape[-1] ** -0.5
        if self.network.activation_bits == 32:
            context = np.stack([_float_attention(*head, scaling) for head in zip(q, k, v, strict=True)])
        else:
            row, head = ((2,), (1, 2)) if self.network.range == Range.TOKEN else ((0, 1, 2), (0, 1, 2))
            p = numerics.softmax(numerics.scores(self._quantize(q, row), self._quantize(k, row), scaling))
            context = numerics.context(self._quantize(p, row), self._quantize(v, head))
        return np.ascontiguousarray(context.swapaxes(0, 1)).reshape(q.shape[1], -1)

    def _heads(self, x: Floats) -> Floats:
        return np.asarray(x.reshape(len(x), self.sizes.heads, -1).swapaxes(0, 1))

    def _quantized_input(self, x: Floats) -> ActivationCodes | None:
        """The input of a linear layer as codes; None if activations are not quantized."""
        if self.network.activation_bits == 32:
            return None
        return self._quantize(x, (1,) if self.network.range == Range.TOKEN else (0, 1))

    def _quantize(self, x: Floats, axes: tuple[int, ...]) -> ActivationCodes:
        network = self.network
        return numerics.quantize(
            _finite(x), axes, bits=network.activation_bits, symmetric=network.symmetric, clip=network.clip
        )

    def _linear(self, x: Floats, linear: Linear | None, codes: ActivationCodes | None) -> Floats:
        """A linear layer of `x`, or of its codes if there are any."""
        assert linear is not None
        weight, bias = linear.weight, linear.bias
        if isinstance(weight, PackedTensor) and codes is not None:
            return numerics.linear(codes, weight.unpack(), weight.scale, bias)
        if codes is not None:
            x = codes.scale * codes.codes.astype(F32) + codes.offset
        y: Array = _products(x, weight.unpack() if isinstance(weight, PackedTensor) else weight)
        if isinstance(weight, PackedTensor):
            y = weight.scale * y
        return np.asarray(y if bias is None else y + bias)

    def _norm(self, x: Floats, norm: Norm) -> Floats:
        return numerics.layer_norm(x, norm.weight, norm.bias, self.network.norm_eps)


def _rows(table: Matrix, ids: Ints) -> Floats:
    """Rows of the word embedding: scale * code, one multiplication each."""
    if not isinstance(table, PackedTensor):
        return np.asarray(table[ids])
    scale = table.scale[ids] if table.scale.size > 1 else table.scale
    return np.asarray(scale[:, None] * table.unpack()[ids].astype(F32))


def _products(x: Array, weight: Array) -> Array:
    """Rows of x times rows of W, each product exact and each sum in float64, rounded once."""
    wide = weight.astype(np.float64)
    return np.stack([numerics.total(row.astype(np.float64) * wide) for row in x]).astype(F32)


def _float_attention(q: Floats, k: Floats, v: Floats, scaling: float) -> Floats:
    p = numerics.softmax(_products(q, k) * F32(scaling))
    return np.stack([_sum_in_order(row[:, None].astype(np.float64) * v) for row in p]).astype(F32)


def _sum_in_order(x: Array) -> Array:
    """Sum over the rows in float64, the first row first."""
    result: Array = np.zeros(x.shape[1:])
    for row in x.astype(np.float64):
        result = result + row
    return result


def _apply(function: Function, x: Floats) -> Floats:
    if function == Function.GELU:
        return numerics.gelu(x)
    if function == Function.GELU_TANH:
        return numerics.gelu(x, "gelu_tanh")
    if function == Function.RELU:
        return np.asarray(np.maximum(x, F32(0)))
    if function == Function.TANH:
        return numerics.tanh(x)
    return x


def _finite(x: Floats) -> Floats:
    if not np.isfinite(x).all():
        raise NonFiniteError("activations became infinite or NaN; the model's weights or scales are too large")
    return x
