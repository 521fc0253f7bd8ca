import dataclasses
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternarybert.errors import RecipeError
from ternarybert.recipe import (
    LAYER,
    METHOD_BITS,
    ONE_STAGE,
    PRESETS,
    ROW,
    TENSOR,
    TOKEN,
    TWO_STAGES,
    Bits,
    Distill,
    Granularity,
    Recipe,
    Stage,
    WeightScheme,
)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_yaml(name):
    recipe = PRESETS[name]
    assert recipe.name == name
    assert Recipe.from_yaml(recipe.to_yaml()) == recipe
    assert Recipe.load(name) is recipe


def test_the_paper_as_printed():
    paper = PRESETS["paper"]
    assert str(paper.bits) == "2-2-8"
    assert (paper.weight.method, paper.weight.granularity) == ("twn", LAYER)
    assert paper.embedding.granularity == ROW
    assert (paper.activation.scheme, paper.activation.granularity) == ("minmax", TENSOR)
    assert paper.weight.clip is paper.activation.clip is None
    assert paper.schedule.learning_rate == 2e-5
    assert paper.schedule.warmup == 0
    assert paper.pooler


def test_the_released_code_as_it_computes():
    released = PRESETS["reference"]
    assert released.activation.scheme == "symmetric"
    assert released.weight.clip == released.embedding.clip == released.activation.clip == 2.5
    assert released.distill.sce == "element"
    assert not released.distill.masked
    assert released.schedule.gradient_clip == "tensor"
    assert released.schedule.warmup == 0.1


@pytest.mark.parametrize("name", ["paper", "reference", "default"])
def test_the_presets_train_as_ever(name):
    """Fields that came later have the value that changes nothing."""
    recipe = PRESETS[name]
    assert (recipe.distill.normalize, recipe.distill.attention_loss, recipe.distill.intervention) == (
        "none",
        "scores",
        0.0,
    )
    assert (recipe.schedule.decay, recipe.schedule.tail, recipe.schedule.average) == ("linear", 0.0, 0.0)
    assert (recipe.weight.method, recipe.embedding.method) == ("twn", "twn")


def test_the_default_never_depends_on_the_batch():
    assert PRESETS["default"].activation.granularity == TOKEN
    assert PRESETS["default"].distill.masked


def test_a_file_may_say_only_what_differs(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("bits: 3-3-8\nweight: {method: laq, levels: log}\nembedding: {method: laq, granularity: group:6}\n")
    recipe = Recipe.load(path)
    assert recipe.bits == Bits(3, 3, 8)
    assert recipe.embedding.granularity == Granularity.group(6)
    assert recipe.schedule == PRESETS["paper"].schedule
    assert Recipe.from_yaml("") == Recipe()


granularities = st.sampled_from([LAYER, ROW]) | st.integers(1, 64).map(Granularity.group)


@st.composite
def recipes(draw):
    def scheme(bits):
        method = draw(st.sampled_from([m for m, possible in METHOD_BITS.items() if bits in possible]))
        exact = method in ("twn", "lat") and draw(st.booleans())
        levels = draw(st.sampled_from(["linear", "log"])) if method == "laq" and bits > 2 else "linear"
        clip = draw(st.none() | st.floats(0.1, 9))
        alpha = draw(st.sampled_from(["l1", "least_squares"]))
        return WeightScheme(method, draw(granularities), exact, levels, clip, alpha)

    bits = Bits(*(draw(st.sampled_from(options)) for options in ([2, 3, 4, 8, 32],) * 2 + ([4, 8, 32],)))
    terms = Distill(draw(st.floats(0, 9)), draw(st.floats(0, 9)), draw(st.floats(0.1, 9)))
    stages = draw(st.sampled_from([None, (Stage(),), (Stage(0.25, ("logits",)), Stage(0.75))]))
    return Recipe(
        "drawn", bits, scheme(bits.w), scheme(bits.e), distill=terms, stages=stages, pooler=draw(st.booleans())
    )


@given(recipes())
def test_any_recipe_survives_yaml(recipe):
    assert Recipe.from_yaml(recipe.to_yaml()) == recipe


@pytest.mark.parametrize("bits", ["2-2-8", "2-8-8", "2-2-32", "3-3-8", "8-8-8", "4-4-4", "32-2-8"])
def test_other_bits_take_the_papers_method_for_them(bits):
    recipe = PRESETS["paper"].with_bits(bits)
    assert str(recipe.bits) == bits
    methods = {2: "twn", 3: "laq", 4: "laq", 8: "symmetric", 32: "none"}
    assert recipe.weight.method == methods[recipe.bits.w]
    assert recipe.embedding.method == methods[recipe.bits.e]
    assert recipe.with_bits(recipe.bits) == recipe
    if recipe.bits.e == 8:  # section 4: layer-wise scaling for 8-bit weights and embedding
        assert recipe.embedding.granularity == LAYER


def test_bits_keep_a_method_that_can_give_them():
    lat = dataclasses.replace(PRESETS["paper"], weight=WeightScheme("lat"))
    assert lat.with_bits("2-8-8").weight.method == "lat"


def test_overrides():
    recipe = PRESETS["paper"].override(
        {"distill.attention": "false", "schedule.learning_rate": "1e-4", "weight.granularity": "row", "bits": "2-2-32"}
    )
    assert recipe.distill.attention == 0
    assert recipe.schedule.learning_rate == 1e-4
    assert recipe.weight.granularity == ROW
    assert recipe.bits.a == 32
    assert PRESETS["paper"].override({"schedule.epochs": 5}).schedule.epochs == 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bits": "2-2"}, "W-E-A, such as 2-2-8"),
        ({"bits": "5-2-8"}, "W cannot have 5 bits; allowed: 2, 3, 4, 8, 32"),
        ({"bits": "2-2-16"}, "A cannot have 16 bits"),
        ({"bits": "8-8-8"}, "weight: method 'twn' .* 8 bits.* symmetric"),
        ({"weight.method": "lat", "bits": "8-2-8"}, "method 'lat' .* 8 bits"),
        ({"weight.method": "lta"}, "did you mean 'lat'"),
        ({"weight.granularity": "token"}, "weights have granularity layer, row or group"),
        ({"weight.granularity": "group:0"}, "at least 1 row"),
        ({"weight.granularity": "rows"}, "did you mean 'row'"),
        ({"activation.granularity": "row"}, "activations have granularity tensor, sample or token"),
        ({"activation.scheme": "min-max"}, "did you mean 'minmax'"),
        ({"activation.clip": "-1"}, "clip must be positive"),
        ({"weight.method": "laq", "weight.exact": "true"}, "'laq' has no exact form"),
        ({"weight.levels": "log"}, "levels: log goes with method 'laq'"),
        ({"distil.attention": "false"}, "'distil'; did you mean 'distill'"),
        ({"distill.attenton": "false"}, "recipe.distill has no field 'attenton'; did you mean 'attention'"),
        ({"distill.hidden": "-1"}, "hidden must be a number of at least 0"),
        ({"distill.hidden": "nan"}, "hidden must be a number of at least 0"),
        ({"distill.hidden": "much"}, "recipe.distill.hidden must be a float, got 'much'"),
        ({"distill.logits": "0", "distill.hidden": "0", "distill.attention": "0"}, "stage 1 has no loss"),
        ({"stages": "[{share: 0.5}]"}, "add up to 1"),
        ({"stages": "[{share: 2}]"}, r"in \(0, 1\]"),
        ({"stages": "[{terms: [logit]}]"}, "did you mean 'logits'"),
        ({"stages": "all"}, "recipe.stages must be a list"),
        ({"stages": "[all]"}, r"recipe.stages\[0\] must be a mapping"),
        ({"schedule.batch_size": "true"}, "batch_size must be a int"),
        ({"schedule.batch_size": "0"}, "batch_size must be positive"),
        ({"schedule.warmup": "1"}, r"warmup .*\[0, 1\), got 1"),
        ({"schedule.tail": "1"}, r"tail .*\[0, 1\), got 1"),
        ({"schedule.tail": "0.95", "schedule.warmup": "0.05"}, "below 1, got 0.05 and 0.95"),
        ({"schedule.tail_rate": "2"}, r"tail_rate .*\[0, 1\], got 2"),
        ({"schedule.decay": "cos"}, "did you mean 'cosine'"),
        ({"schedule.average": "-0.1"}, r"average .*got -0.1"),
        ({"distill.normalize": "var"}, "unknown value 'var'"),
        ({"distill.attention_loss": "map"}, "did you mean 'maps'"),
        ({"distill.intervention": "1.5"}, r"intervention .*got 1.5"),
        ({"weight.method": "lsq", "bits": "3-2-8"}, "method 'lsq' .* 3 bits"),
        ({"weight.method": "lsq", "weight.exact": "true"}, "'lsq' has no exact form"),
        ({"pooler": "["}, "the value of pooler is not valid YAML"),
        ({"pooler": "2020-99-99"}, "the value of pooler is not valid YAML"),
        ({"bits.w": "3"}, "'bits' is a single value"),
        ({"schedule.learning_rate": "true"}, "learning_rate must be a float, got 'True'"),
        ({"schedule.epochs": "1" + "0" * 400}, "epochs must be a float"),
        ({"bits": "[2, 2, 8]"}, "recipe.bits must be a word"),
        ({"bits": "2-2-8", "weight.method": "laq", "weight.levels": "log"}, "log goes with 3 or 4 bits, not 2"),
        ({"weight.granularity": "layer:5"}, "unknown granularity 'layer:5'"),
        ({"embedding.clip": "0"}, "recipe.embedding: clip must be positive"),
        ({"weight.alpha": "l2"}, "unknown value 'l2'"),
        ({"name": "x" * 500, "distill.hidden": "y" * 500}, r"got 'y{60}\.\.\.'"),
    ],
)
def test_what_is_wrong_is_named(settings, message):
    with pytest.raises(RecipeError, match=message):
        PRESETS["paper"].override(settings)


def test_bad_files(tmp_path):
    with pytest.raises(RecipeError, match="did you mean 'default'"):
        Recipe.load("defualt")
    path = tmp_path / "broken.yaml"
    path.write_text("bits: [2\n")
    with pytest.raises(RecipeError, match="not valid YAML"):
        Recipe.load(path)
    with pytest.raises(RecipeError, match="must be a mapping"):
        Recipe.from_yaml("- a\n- b\n")
    with pytest.raises(RecipeError, match="'bits' is given twice"):
        Recipe.from_yaml("bits: 2-2-8\nbits: 3-3-8\n")
    path.write_bytes(b"name: \xff\xfe")
    with pytest.raises(RecipeError, match="UTF-8"):
        Recipe.load(path)
    with pytest.raises(RecipeError, match="neither a file nor a preset"):
        Recipe.load("x" * 5000)
    with pytest.raises(RecipeError, match="5000 opening brackets"):
        Recipe.from_yaml("[" * 5000)


def test_a_changed_preset_does_not_keep_its_name():
    paper = PRESETS["paper"]
    assert paper.override({"pooler": "true"}).name == "paper"
    changed = paper.override({"pooler": "false"})
    assert changed.name == "paper (changed)"
    assert changed.override({"distill.attention": "0"}).name == "paper (changed)"
    assert paper.override({"pooler": "false", "name": "mine"}).name == "mine"
    assert Recipe.from_yaml("pooler: false").name == "custom"


@pytest.mark.parametrize(("kind", "rows"), [("Layer", 1), ("group", 0), ("layer", 5)])
def test_granularities_check_themselves(kind, rows):
    with pytest.raises(RecipeError):
        Granularity(kind, rows)


def test_default_stages_are_those_of_the_paper():
    paper = PRESETS["paper"]
    assert paper.for_task(two_stages=True).stages == TWO_STAGES
    assert paper.for_task(two_stages=False).stages == ONE_STAGE
    assert TWO_STAGES[0].terms == ("hidden", "attention")
    explicit = paper.override({"stages": "[{share: 1}]"})
    assert explicit.stages == ONE_STAGE
    for recipe in (explicit, PRESETS["default"], PRESETS["reference"]):
        assert recipe.for_task(two_stages=True) is recipe


def test_without_the_transformer_terms_there_is_no_first_stage():
    logits_only = PRESETS["paper"].override({"distill.hidden": "0", "distill.attention": "0"})
    assert logits_only.for_task(two_stages=True).stages == ONE_STAGE


MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 9))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (MERGES, "*a0"),
        ("weight: &w {method: twn}\nembedding: *w\n", "*w"),
        ("<<: {pooler: true}\n", "<<"),
        ("weight: {<<: {method: twn}}\n", "<<"),
        ("".join(f"key{i}: 1\n" for i in range(35_000)), "limit"),
        ("".join(f"k{i}: 1\n" for i in range(6_000)), "k0"),
        ("{a: " * 5000, "brackets"),
        ("[" * 60_000, "brackets"),
        ("pooler: true\npooler: true\n", "pooler"),
    ],
    ids=["bomb", "alias", "merge", "inner merge", "long", "many keys", "deep", "brackets", "twice"],
)
def test_recipes_that_repeat_themselves_or_never_end(tmp_path, text, named):
    (tmp_path / "recipe.yaml").write_text(text)
    start = time.monotonic()
    with pytest.raises(RecipeError) as caught:
        Recipe.load(tmp_path / "recipe.yaml")
    assert named in str(caught.value)
    assert time.monotonic() - start < 5
