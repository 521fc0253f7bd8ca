"""Random models, and their forward pass in NumPy: one sequence at a time, every formula from numerics.py."""

import numpy as np

from ternarybert import numerics as nm

F32 = np.float32


def random_model(seed=0, **changes):
    """A model of random weights; see the defaults for what can be changed."""
    s = {
        "hidden": 48, "heads": 3, "intermediate": 80, "layer_count": 2, "vocabulary": 50, "positions": 40, "types": 2,
        "first_position": 0, "function": "gelu", "norm_eps": 1e-12, "activation_bits": 8, "range": 0, "symmetric": 0,
        "clip": 0.0, "bits": 2, "word_bits": 2, "log": False, "dense_packing": False, "row_scales": False,
        "dense_function": "tanh", "dense_quantized": 1, "dense_bits": None, "dense_rows": None, "head_rows": 3,
        "bias": True,
    }  # fmt: skip
    s.update(changes)
    rng = np.random.default_rng(seed)

    def floats(*shape, scale=1.0):
        return (rng.standard_normal(shape) * scale).astype(F32)

    def matrix(rows, columns, bits):
        if bits == 32:
            return {"bits": 32, "codes": floats(rows, columns, scale=columns**-0.5), "scale": np.ones(1, F32)}
        largest = 2 ** (bits - 1) - 1
        codes = rng.integers(-largest, largest + 1, (rows, columns))
        if log := s["log"] and bits in (3, 4):
            codes = np.sign(codes) * 2 ** np.maximum(np.abs(codes) - 1, 0)
        scale = np.abs(floats(rows if s["row_scales"] else 1)) / np.sqrt(columns) / np.abs(codes).mean()
        packing = s["dense_packing"] and bits == 2
        return {"bits": bits, "codes": codes, "scale": scale.astype(F32), "log": log, "dense": packing}

    def linear(rows, columns, bits):
        return {**matrix(rows, columns, bits), "bias": floats(rows, scale=0.1) if s["bias"] else None}

    def norm():
        return {"weight": 1 + floats(hidden, scale=0.2), "bias": floats(hidden, scale=0.2)}

    hidden, up, bits = s["hidden"], s["intermediate"], s["bits"]
    shapes = {"up": (up, hidden), "down": (hidden, up)}
    names = ("query", "key", "value", "attention_output", "up", "down")
    model = {k: s[k] for k in (
        "hidden", "heads", "intermediate", "positions", "types", "first_position", "function", "norm_eps",
        "activation_bits", "range", "symmetric", "clip", "dense_function", "dense_quantized",
    )}  # fmt: skip
    model["word"] = matrix(s["vocabulary"], hidden, s["word_bits"])
    model["position"] = floats(s["positions"], hidden, scale=0.3)
    model["type"] = floats(s["types"], hidden, scale=0.3) if s["types"] else None
    model["embedding_norm"] = norm()
    model["layers"] = [
        {n: linear(*shapes.get(n, (hidden, hidden)), bits) for n in names}
        | {"attention_norm": norm(), "output_norm": norm()}
        for _ in range(s["layer_count"])
    ]
    dense_rows = hidden if s["dense_rows"] is None else s["dense_rows"]
    model["dense"] = linear(dense_rows, hidden, s["dense_bits"] or bits) if dense_rows else None
    model["head"] = linear(s["head_rows"], dense_rows or hidden, 32) if s["head_rows"] else None
    return model


class Forward:
    """The forward pass of one model."""

    def __init__(self, model):
        self.model = model

    def codes(self, x, axes):
        m = self.model
        return nm.quantize(x, axes, bits=m["activation_bits"], symmetric=bool(m["symmetric"]), clip=m["clip"] or None)

    @property
    def quantized(self):
        return self.model["activation_bits"] != 32

    @property
    def per_token(self):
        return self.model["range"] == 0

    def plain(self, x, linear):
        products = x.astype(np.float64)[..., None, :] * linear["codes"].astype(np.float64)
        y = linear["scale"] * nm.total(products).astype(F32)
        return y if linear["bias"] is None else y + linear["bias"]

    def linear(self, x, linear, quantized=None):
        if not (self.quantized if quantized is None else quantized):
            return self.plain(x, linear)
        q = self.codes(x, (-1,) if self.per_token else (0, 1))
        if linear["bits"] == 32:
            return self.plain(q.scale * q.codes.astype(F32) + q.offset, linear)
        return nm.linear(q, linear["codes"], linear["scale"], linear["bias"])

    def attention(self, q, k, v):
        """(heads, n, width) each."""
        scaling = q.shape[-1] ** -0.5
        if not self.quantized:
            products = q.astype(np.float64)[:, :, None] * k.astype(np.float64)[:, None]
            p = nm.softmax(nm.total(products).astype(F32) * F32(scaling))
            sums = np.zeros(q.shape)
            for key in range(k.shape[1]):
                sums += p[:, :, key : key + 1].astype(np.float64) * v[:, key : key + 1].astype(np.float64)
            return sums.astype(F32)
        everything = (0, 1, 2)
        each = (-1,) if self.per_token else everything
        scores = nm.scores(self.codes(q, each), self.codes(k, each), scaling)
        p = self.codes(nm.softmax(scores), each)
        return nm.context(p, self.codes(v, (1, 2) if self.per_token else everything))

    def norm(self, x, norm):
        return nm.layer_norm(x, norm["weight"], norm["bias"], self.model["norm_eps"])

    def function(self, x, name):
        if name.startswith("gelu"):
            return nm.gelu(x, name)
        return {"relu": lambda v: np.maximum(v, F32(0)), "tanh": np.tanh, "identity": lambda v: v}[name](x)

    def hidden(self, ids, types=None):
        m = self.model
        word = m["word"]
        scale = word["scale"][ids] if len(word["scale"]) > 1 else word["scale"]
        x = scale[:, None] * word["codes"][ids].astype(F32)
        if m["type"] is not None:
            x = x + m["type"][np.zeros_like(ids) if types is None else types]
        x = self.norm(x + m["position"][m["first_position"] + np.arange(len(ids))], m["embedding_norm"])
        for layer in m["layers"]:
            q, k, v = (
                self.linear(x, layer[n]).reshape(len(ids), m["heads"], -1).swapaxes(0, 1)
                for n in ("query", "key", "value")
            )
            context = self.attention(q, k, v).swapaxes(0, 1).reshape(len(ids), -1)
            x = self.norm(self.linear(context, layer["attention_output"]) + x, layer["attention_norm"])
            up = self.function(self.linear(x, layer["up"]), m["function"])
            x = self.norm(self.linear(up, layer["down"]) + x, layer["output_norm"])
        return x

    def dense(self, x):
        m = self.model
        return self.function(self.linear(x, m["dense"], self.quantized and m["dense_quantized"]), m["dense_function"])

    def run(self, ids, output, types=None):
        m, x = self.model, self.hidden(ids, types)
        if output == "hidden":
            return x
        if output == "token_logits":
            return self.plain(x, m["head"])
        if output == "mean":
            total = np.zeros(m["hidden"])
            for row in x:
                total = total + row.astype(np.float64)
            return (total / len(x)).astype(F32)[None]
        x = x[:1]
        if output == "dense" or (output == "logits" and m["dense"]):
            x = self.dense(x)
        return self.plain(x, m["head"]) if output == "logits" else x
