"""The network computed in float64 from dequantized weights, sharing no arithmetic with numerics.py.

Written from the table of ranges in the documents. What it gives differs from the oracle's float32 by rounding only;
where an activation lies between two levels, rounding may choose the other one.
"""

import math

import numpy as np

from ternarybert.packed import PackedTensor
from ternarybert.runtime.network import Function, Output, Range


def weights(matrix):
    return (matrix.dequantize() if isinstance(matrix, PackedTensor) else matrix).astype(np.float64)


def levels(x, network):
    """`x` rounded to the levels of one range over all of it."""
    bits, clip = network.activation_bits, network.clip or np.inf
    if network.symmetric:
        top = 2 ** (bits - 1) - 1
        step = min(np.abs(x).max(), clip) / top
        return np.zeros_like(x) if step == 0 else np.clip(np.round(x / step), -top, top) * step
    low, high = np.clip([x.min(), x.max()], -clip, clip)
    step = (high - low) / (2**bits - 1)
    return np.full_like(x, low) if step == 0 else np.clip(np.round((x - low) / step), 0, 2**bits - 1) * step + low


def by_rows(x, network):
    """A range for each row, or one for the sequence."""
    if network.activation_bits == 32:
        return x
    if network.range == Range.SEQUENCE:
        return levels(x, network)
    flat = x.reshape(-1, x.shape[-1])
    return np.stack([levels(row, network) for row in flat]).reshape(x.shape)


def values(v, network):
    if network.activation_bits == 32 or network.range == Range.SEQUENCE:
        return by_rows(v, network)
    return np.stack([levels(head, network) for head in v])


def apply(function, x):
    return {
        Function.IDENTITY: lambda x: x,
        Function.GELU: lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
        Function.GELU_TANH: lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        Function.RELU: lambda x: np.maximum(x, 0),
        Function.TANH: np.tanh,
    }[function](x)


def linear(x, layer):
    y = x @ weights(layer.weight).T
    return y if layer.bias is None else y + layer.bias


def normalize(x, norm, eps):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d**2).mean(-1, keepdims=True) + eps) * norm.weight + norm.bias


def layer_of(x, layer, network):
    def heads(y):
        return y.reshape(len(y), network.sizes.heads, -1).transpose(1, 0, 2)

    x_hat = by_rows(x, network)
    q, k, v = (heads(linear(x_hat, one)) for one in (layer.query, layer.key, layer.value))
    scores = by_rows(q, network) @ by_rows(k, network).transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    e = np.exp(scores - scores.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    context = (by_rows(p, network) @ values(v, network)).transpose(1, 0, 2).reshape(x.shape)
    x = normalize(linear(by_rows(context, network), layer.attention_output) + x, layer.attention_norm, network.norm_eps)
    middle = apply(network.function, linear(by_rows(x, network), layer.up))
    return normalize(linear(by_rows(middle, network), layer.down) + x, layer.output_norm, network.norm_eps)


def hidden_states(network, ids, types):
    first = network.sizes.first_position
    x = weights(network.word)[ids] + network.position[first : first + len(ids)]
    if network.type is not None:
        x = x + network.type[types]
    x = normalize(x, network.embedding_norm, network.norm_eps)
    for layer in network.layers:
        x = layer_of(x, layer, network)
    return x


def output_of(network, x, output):
    """What an output is, from the last hidden states."""
    pooled = x[:1]
    if network.dense is not None:
        row = by_rows(pooled, network) if network.dense_quantized else pooled
        pooled = apply(network.dense_function, linear(row, network.dense))
    return {
        Output.HIDDEN: lambda: x,
        Output.FIRST: lambda: x[:1],
        Output.MEAN: lambda: x.mean(0, keepdims=True),
        Output.DENSE: lambda: pooled,
        Output.LOGITS: lambda: linear(pooled, network.head),
        Output.TOKEN_LOGITS: lambda: linear(x, network.head),
    }[output]()
