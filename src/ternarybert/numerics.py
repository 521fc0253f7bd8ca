"""The arithmetic of an evaluated model, defined to the last bit and shared by all engines.

Quantized activations amplify rounding differences: if two engines differ by one part in ten million, some activation is
rounded up in one and down in the other, and a few layers later the logits differ by a hundredth. So that the student in
torch, the NumPy oracle and the native kernels give the same result, the arithmetic between the integers is fixed here:

- Elementwise float32 operations run in the written order, each rounded by itself: no fused multiply-add.
- Sums over integers are exact. Sums over floats run in float64 in eight lanes, element i in lane i mod 8, and the lanes
  are added as ((0+4) + (2+6)) + ((1+5) + (3+7)). Torch adds in another order; in float64 that makes no difference.
- exp and GELU are the polynomials below, within 1e-7 and 3e-7 of the true functions.
- Codes are unsigned, 0 .. 2^bits - 1, with a scale and an offset: x_hat = scale * code + offset.

The functions take and return float32 arrays. They are a definition and not meant to be fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
F32 = np.float32

# h(t) = t (1 - Phi(t)) on [0, 6), so that GELU(x) = max(x, 0) - h(|x|): eight pieces of width 0.75, each a polynomial
# in the position within the piece, lowest power first. Chebyshev interpolation in float64, rounded, with h(0) = 0.
GELU_WIDTH = 0.75
GELU_LAST = F32(5.9999995)  # the last position in the last piece
GELU_PIECES = {
    "gelu": np.array(
        [
            (0.0, 0.3749959170818329, -0.2243405133485794, -0.0003778485697694123,
             0.022069070488214493, -0.0013755738036707044, -0.0010006286902353168),
            (0.1699705272912979, 0.0005795765900984406, -0.12172994762659073, 0.054464325308799744,
             0.0019107551779597998, -0.006148933432996273, 0.0011644962942227721),
            (0.1002107784152031, -0.09559951722621918, 0.009068519808351994, 0.024136127904057503,
             -0.012087509967386723, 0.0016462297644466162, 0.00013045720697846264),
            (0.027505068108439445, -0.044392671436071396, 0.027343878522515297, -0.005366808734834194,
             -0.002351079834625125, 0.0016178927617147565, -0.00030659124604426324),
            (0.004049697425216436, -0.008959546685218811, 0.008730255998671055, -0.004705362021923065,
             0.001378526329062879, -0.0001474693708587438, -1.4538547475240193e-05),
            (0.0003315644571557641, -0.0009253263706341386, 0.001195640186779201, -0.0009321987745352089,
             0.00047137844376266, -0.0001483804953750223, 2.2612504835706204e-05),
            (1.5289349903468974e-05, -5.137922926223837e-05, 8.17557011032477e-05, -8.042420813580975e-05,
             5.214177508605644e-05, -2.092256363539491e-05, 3.938572262995876e-06),
            (3.992440440470091e-07, -1.5669362483095028e-06, 2.941804950751248e-06, -3.4261315704497974e-06,
             2.6002401227742666e-06, -1.1890109590240172e-06, 2.4672050358276465e-07),
        ],
        F32,
    ),
    "gelu_tanh": np.array(
        [
            (0.0, 0.37499570846557617, -0.2243373990058899, -0.00039609798113815486,
             0.02222300134599209, -0.0014419881626963615, -0.0010038897162303329),
            (0.17003946006298065, 0.0007954417960718274, -0.12157170474529266, 0.05437812581658363,
             0.0016774485120549798, -0.006062936037778854, 0.0011725921649485826),
            (0.10042840242385864, -0.09578096121549606, 0.008548945188522339, 0.024087850004434586,
             -0.011785407550632954, 0.0015880821738392115, 0.00011444207484601066),
            (0.0272013321518898, -0.044936127960681915, 0.02767231874167919, -0.005071483086794615,
             -0.002546073403209448, 0.001602774253115058, -0.0002853532205335796),
            (0.00363739556632936, -0.008688476867973804, 0.008940329775214195, -0.004934194032102823,
             0.0013952648732811213, -0.00010195763752562925, -2.9112488846294582e-05),
            (0.00021925171313341707, -0.0007134843617677689, 0.0010570058366283774, -0.0009255746263079345,
             0.0005125124007463455, -0.00017164451128337532, 2.707073144847527e-05),
            (5.13651912115165e-06, -2.1970266971038654e-05, 4.387326043797657e-05, -5.2956456784158945e-05,
             4.070656723342836e-05, -1.8565229765954427e-05, 3.815355285041733e-06),
            (3.957483230010439e-08, -2.159208065677376e-07, 5.528021347345202e-07, -8.454726980744454e-07,
             7.974793447829143e-07, -4.2704951397354307e-07, 9.867704875432537e-08),
        ],
        F32,
    ),
}  # fmt: skip

# exp(r) = 1 + r + r^2 (c0 + c1 r + ...) on |r| <= ln(2)/2; ln 2 in two parts, the first short: products are exact.
EXP_LOWEST = F32(-80.0)  # below it exp is taken as exp(-80): no product with a probability is denormal
EXP_LOG2E = F32(1.44269504)
EXP_LN2_HIGH, EXP_LN2_LOW = F32(0.693359375), F32(-2.12194440e-4)
EXP_POWERS = np.array(
    [0.5, 0.16666576266288757, 0.041666556149721146, 0.008363177999854088, 0.0013926181709393859], F32
)


def gelu(x: Array, kind: str = "gelu") -> Array:
    """max(x, 0) - h(|x|)."""
    u = np.minimum(np.abs(x), GELU_LAST) * F32(1 / GELU_WIDTH)
    piece = u.astype(np.int32)  # towards zero
    f = u - piece.astype(F32)
    powers = GELU_PIECES[kind][piece]
    h = powers[..., 6]
    for k in range(5, -1, -1):
        h = h * f + powers[..., k]
    return np.asarray(np.maximum(x, F32(0)) - h)


def exp(x: Array) -> Array:
    """e^x for x <= 0."""
    x = np.maximum(x, EXP_LOWEST)
    n = np.rint(x * EXP_LOG2E)
    r = (x - n * EXP_LN2_HIGH) - n * EXP_LN2_LOW
    q = np.full_like(r, EXP_POWERS[4])
    for k in range(3, -1, -1):
        q = q * r + EXP_POWERS[k]
    y = ((q * r) * r + r) + F32(1)
    return np.asarray(y.view(np.int32) + (n.astype(np.int32) << 23)).view(F32)


def tanh(x: Array) -> Array:
    """Computed in float64 and rounded: libraries differ in the last bit of a float32 tanh."""
    return np.asarray(np.tanh(x.astype(np.float64)).astype(F32))


def total(x: Array) -> Array:
    """Sum over the last axis in float64, in eight lanes."""
    x = x.astype(np.float64)
    x = np.concatenate([x, np.zeros((*x.shape[:-1], -x.shape[-1] % 8))], axis=-1)
    lanes = np.zeros((*x.shape[:-1], 8))
    for start in range(0, x.shape[-1], 8):
        lanes = lanes + x[..., start : start + 8]
    four = lanes[..., :4] + lanes[..., 4:]
    two = four[..., :2] + four[..., 2:]
    return np.asarray(two[..., 0] + two[..., 1])


def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """LayerNorm over the last axis; mean and deviation are rounded to float32, the rest is elementwise."""
    n = x.shape[-1]
    mean = (total(x) / n).astype(F32)
    d = x - mean[..., None]
    variance = total(d.astype(np.float64) ** 2) / n  # a float32 squared is exact in float64
    inverse = (1.0 / np.sqrt(variance + eps)).astype(F32)
    return np.asarray((d * inverse[..., None]) * weight + bias)


def softmax(x: Array) -> Array:
    """Softmax over the last axis."""
    e = exp(x - x.max(-1, keepdims=True))
    inverse = (1.0 / total(e)).astype(F32)
    return np.asarray(e * inverse[..., None])


@dataclass(frozen=True)
class ActivationCodes:
    """Quantized activations: x_hat = scale * codes + offset, scale and offset broadcasting against the codes."""

    codes: Array  # uint8
    scale: Array
    offset: Array


def quantize(
    x: Array, axes: tuple[int, ...], *, bits: int = 8, symmetric: bool = False, clip: float | None = None
) -> ActivationCodes:
    """Codes of `x` with one range over `axes`. Symmetric codes q are stored as q + 2^(bits-1), with an offset."""
    low, high = x.min(axes, keepdims=True), x.max(axes, keepdims=True)
    if symmetric:
        largest = 2 ** (bits - 1) - 1
        magnitude = np.maximum(high, -low)
        magnitude = magnitude if clip is None else np.minimum(magnitude, F32(clip))
        scale = magnitude / F32(largest)
        codes = np.rint(x * _inverse(scale)).clip(-largest, largest) + F32(largest + 1)
        return ActivationCodes(codes.astype(np.uint8), scale, scale * F32(-(largest + 1)))
    if clip is not None:
        low, high = low.clip(-F32(clip), F32(clip)), high.clip(-F32(clip), F32(clip))
    scale = (high - low) / F32(2**bits - 1)
    codes = np.rint((x - low) * _inverse(scale)).clip(0, 2**bits - 1)
    return ActivationCodes(codes.astype(np.uint8), scale, low)


def _inverse(scale: Array) -> Array:
    """1/scale, or 0 where all values are equal: the codes are then 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(np.where(scale >= np.finfo(F32).tiny, F32(1) / scale, F32(0)))


def linear(x: ActivationCodes, weight: Array, scale: Array, bias: Array | None) -> Array:
    """x_hat (scale * weight)^T + bias, from integer codes of activations (.., K) and weights (N, K).

    `scale` has one element or one per row of the weight; the activations have one range per row, or one for all.
    """
    products = (x.codes.astype(np.int64) @ weight.astype(np.int64).T).astype(F32)
    sums = weight.sum(-1, dtype=np.int64).astype(F32)
    y = scale * (x.scale * products + x.offset * sums)
    return np.asarray(y if bias is None else y + bias)


def scores(q: ActivationCodes, k: ActivationCodes, scaling: float) -> Array:
    """Scaled products of queries (.., n, d) with keys (.., m, d); one range per query and per key, or one for all."""
    products = (q.codes.astype(np.int64) @ k.codes.astype(np.int64).swapaxes(-1, -2)).astype(F32)
    q_sums = q.codes.sum(-1, keepdims=True, dtype=np.int64).astype(F32)
    k_sums = k.codes.sum(-1, keepdims=True, dtype=np.int64).astype(F32)
    q_scale, q_offset = q.scale * F32(scaling), q.offset * F32(scaling)
    k_total = k.scale * k_sums + F32(k.codes.shape[-1]) * k.offset  # sum of k_hat
    k_scale, k_offset, k_total = (np.swapaxes(a, -1, -2) for a in (k.scale, k.offset, k_total))
    return np.asarray(((q_scale * products) * k_scale + (q_scale * q_sums) * k_offset) + q_offset * k_total)


def context(p: ActivationCodes, v: ActivationCodes) -> Array:
    """Probabilities (.., n, m), one range per row, times values (.., m, d) with one range for all."""
    products = (p.codes.astype(np.int64) @ v.codes.astype(np.int64)).astype(F32)
    p_sums = p.codes.sum(-1, keepdims=True, dtype=np.int64).astype(F32)
    v_sums = v.codes.sum(-2, keepdims=True, dtype=np.int64).astype(F32)
    v_total = v.scale * v_sums + F32(v.codes.shape[-2]) * v.offset  # sum of v_hat
    return np.asarray(((p.scale * v.scale) * products + (p.scale * v.offset) * p_sums) + p.offset * v_total)
