"""A quantized BERT in NumPy, written from the paper and the table in architecture terms, sharing no code with ours.

Slow and obvious: loops over sequences and heads, so that every range is taken exactly over what the recipe says.
Supports `reference` (one symmetric range a batch tensor, clip 2.5) and min-max ranges per token.
"""

import math

import numpy as np


def ternary(w, rowwise, clip):
    w = np.clip(w, -clip, clip) if clip else w
    out = np.zeros_like(w)
    for rows in [[i] for i in range(len(w))] if rowwise else [range(len(w))]:
        part = w[list(rows)]
        keep = np.abs(part) > 0.7 * np.abs(part).mean()
        if keep.any():
            out[list(rows)] = np.sign(part) * keep * np.abs(part)[keep].mean()
    return out


def symmetric_whole(x, clip=2.5):
    x = np.clip(x, -clip, clip)
    scale = np.abs(x).max() / 127
    return np.round(x / scale) * scale


def minmax(x):
    low, high = x.min(), x.max()
    step = (high - low) / 255
    return np.full_like(x, low) if step == 0 else np.round((x - low) / step) * step + low


def layer_norm(x, weight, bias, eps):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps) * weight + bias


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class NumpyBert:
    """Weights by Hugging Face name; `mode` is "reference" or "token"."""

    def __init__(self, state, config, mode):
        self.p, self.c, self.mode = state, config, mode
        self.clip = 2.5 if mode == "reference" else None

    def rows(self, x):
        """The input of a linear layer, (B, n, d) or (B, d)."""
        if self.mode == "reference":
            return symmetric_whole(x)
        return np.stack([minmax(row) for row in x.reshape(-1, x.shape[-1])]).reshape(x.shape)

    def linear(self, name, x):
        return x @ ternary(self.p[f"{name}.weight"], False, self.clip).T + self.p[f"{name}.bias"]

    def norm(self, name, x):
        return layer_norm(x, self.p[f"{name}.weight"], self.p[f"{name}.bias"], self.c.layer_norm_eps)

    def heads(self, x):
        b, n, _ = x.shape
        return x.reshape(b, n, self.c.num_attention_heads, -1).transpose(0, 2, 1, 3)

    def quantized_heads(self, q, k, v, mask):
        if self.mode == "reference":
            return symmetric_whole(q), symmetric_whole(k), symmetric_whole(v)
        v = v.copy()
        for b in range(len(v)):
            real = mask[b].astype(bool)
            for h in range(v.shape[1]):
                low, high = v[b, h, real].min(), v[b, h, real].max()
                step = (high - low) / 255
                v[b, h] = np.clip(np.round((v[b, h] - low) / step), 0, 255) * step + low
        return self.rows(q), self.rows(k), v

    def quantized_probabilities(self, p, mask):
        if self.mode == "reference":
            return symmetric_whole(p)
        p_hat = np.zeros_like(p)  # padded keys take no part
        for b, h, i in np.ndindex(*p.shape[:3]):
            real = mask[b].astype(bool)
            p_hat[b, h, i, real] = minmax(p[b, h, i, real])
        return p_hat

    def attention(self, prefix, x, mask):
        x_hat = self.rows(x)
        q, k, v = (self.heads(self.linear(f"{prefix}.self.{part}", x_hat)) for part in ("query", "key", "value"))
        q, k, v = self.quantized_heads(q, k, v, mask)
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1])
        p = softmax(scores + np.where(mask, 0, -1e30)[:, None, None, :])
        context = self.quantized_probabilities(p, mask) @ v
        context = context.transpose(0, 2, 1, 3).reshape(x.shape)
        out = self.linear(f"{prefix}.output.dense", self.rows(context))
        return self.norm(f"{prefix}.output.LayerNorm", out + x), scores

    def __call__(self, ids, segments, mask):
        """Logits, all hidden states and all scores."""
        e = "bert.embeddings"
        words = ternary(self.p[f"{e}.word_embeddings.weight"], True, self.clip)[ids]
        places = self.p[f"{e}.position_embeddings.weight"][: ids.shape[1]]
        x = self.norm(f"{e}.LayerNorm", words + places + self.p[f"{e}.token_type_embeddings.weight"][segments])
        hidden, scores = [x], []
        for i in range(self.c.num_hidden_layers):
            layer = f"bert.encoder.layer.{i}"
            x, a = self.attention(f"{layer}.attention", x, mask)
            middle = gelu(self.linear(f"{layer}.intermediate.dense", self.rows(x)))
            x = self.norm(f"{layer}.output.LayerNorm", self.linear(f"{layer}.output.dense", self.rows(middle)) + x)
            hidden.append(x)
            scores.append(a)
        pooled = np.tanh(self.linear("bert.pooler.dense", self.rows(x[:, 0])))
        return pooled @ self.p["classifier.weight"].T + self.p["classifier.bias"], hidden, scores
