"""The packed folder holds the student's quantized weights bit for bit, however they were quantized."""

import dataclasses
import tempfile
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ternarybert
from ternarybert.packed import PackedTensor, read, write
from ternarybert.recipe import LAYER, METHOD_BITS, ROW, Bits, Granularity, Recipe, WeightScheme
from ternarybert.student import quantized_layers
from ternarybert.training.export import packed_model

from .students import outputs, random_student, repack_ternary

schemes = st.sampled_from([(method, bits) for method, able in METHOD_BITS.items() for bits in able])


@st.composite
def weights(draw):
    """A scheme and its bits, out of all there are."""
    method, bits = draw(schemes)
    exact = method in ("twn", "lat") and draw(st.booleans())
    levels = draw(st.sampled_from(["linear", "log"])) if method == "laq" and bits > 2 else "linear"
    granularity = draw(st.sampled_from([LAYER, ROW, Granularity.group(2)]))
    clip = draw(st.sampled_from([None, 0.4]))
    return WeightScheme(method, granularity, exact, levels, clip), bits


@st.composite
def recipes(draw):
    (weight, w), (embedding, e) = draw(weights()), draw(weights())
    activations = draw(st.sampled_from([4, 8, 32]))
    recipe = Recipe(bits=Bits(w, e, activations), weight=weight, embedding=embedding, pooler=draw(st.booleans()))
    granularity = Granularity(draw(st.sampled_from(["tensor", "sample", "token"])))
    return dataclasses.replace(recipe, activation=dataclasses.replace(recipe.activation, granularity=granularity))


@settings(deadline=None, max_examples=60)
@given(recipe=recipes(), packing=st.sampled_from(["plain", "dense"]), seed=st.integers(0, 99))
def test_every_method_bits_and_granularity(recipe, packing, seed):
    student = random_student(recipe, seed=seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "p"
        write(folder, repack_ternary(packed_model(student, recipe), packing))
        tensors = read(folder).tensors
        for name, layer in quantized_layers(student):
            stored = tensors.pop(f"{name}.weight")
            assert stored.dequantize().tobytes() == layer.w_hat().numpy().tobytes(), name
        assert not any(isinstance(tensor, PackedTensor) for tensor in tensors.values())
        for name, tensor in tensors.items():
            assert tensor.tobytes() == student.state_dict()[name].numpy().tobytes(), name
        assert torch.equal(outputs(ternarybert.load_torch(folder)), outputs(student))
