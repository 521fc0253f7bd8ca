"""Figures: the numbers on them, users' words on them, and their files."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternarybert.data.metrics import mistakes
from ternarybert.report import charts, weights
from ternarybert.report.charts import INK, printable
from ternarybert.report.collect import SizeScore, level_shares, per_matrix, read_models

from . import world


def words(picture):
    """The texts of a figure, as XML has them."""
    return [
        "".join(node.itertext()).strip() for node in ET.fromstring(picture.svg).iter() if node.tag.endswith("}text")
    ]


def values(picture, pattern):
    return [word for word in words(picture) if re.fullmatch(pattern, word)]


@pytest.fixture
def model(folder):
    return read_models([folder])[0]


def test_size_against_score():
    points = [
        SizeScore("one", 6 * 2**20, 86.0),
        SizeScore("two", 12 * 2**20, 87.5),
        SizeScore("big", 400 * 2**20, 90.0, teacher=True),
    ]
    picture = charts.size_accuracy(points, "accuracy", "size")
    assert {"one: 6.0 MiB, 86.0", "two: 12.0 MiB, 87.5", "big: 400.0 MiB, 90.0", "accuracy"} <= set(words(picture))
    assert {"5", "10", "100", "500"} <= set(words(picture))


def test_a_curve_of_scores(model):
    picture = charts.score_curve(model.run, "scores")
    assert {"accuracy", "agreement with the teacher", "teacher's accuracy", "packed: best"} <= set(words(picture))
    assert "packed: last" in words(charts.score_curve(replace(model.run, kept="last"), "scores"))
    assert "81.25 at step 20" in picture.caption
    assert "80.00" in picture.caption


def test_a_curve_of_losses(model):
    picture = charts.loss_curve(model.run, "loss")
    assert {"loss (weighted sum)", "hidden", "logits", "0.1", "1"} <= set(words(picture))
    assert not any("mathdefault" in word for word in words(picture))


def test_every_matrix_has_its_number(model):
    zeros = per_matrix(model.inspection, "zeros")
    picture = charts.matrix_map(zeros, "zeros", "Zeros", "Shares", percent=True)
    order = [zeros[symbol, layer] for layer in range(2) for symbol in ("w_q", "w_k", "w_v", "w_o", "w_1", "w_2")]
    assert values(picture, r"\d+%") == [f"{value:.0%}" for value in order]
    assert {"query", "1", "2", "layer"} <= set(words(picture))


def test_levels_have_their_shares(model):
    shares = level_shares(model.packed)
    expected = [f"{share:.0%}" for kind in shares.values() for share in kind.values() if share > 0.09]
    assert values(charts.levels(shares, "levels"), r"\d+%") == expected


def test_confusion_has_every_count_and_label(model):
    counts = model.run.confusion["student"]
    picture = charts.confusion(counts, world.LABELS, "student", "confusion")
    assert values(picture, r"\d+") == [str(n) for row in counts for n in row]
    assert {'"quoted" & $x…', "<script>alert…", "plain"} <= set(words(picture))
    right = (28 + 39 + 50) / sum(map(sum, counts))
    assert picture.caption.startswith(f"{right:.1%} of {sum(map(sum, counts))} rows")
    assert "<script" not in picture.svg


def test_a_class_without_rows():
    picture = charts.confusion([[0, 0], [1, 3]], ["a", "b"], "student", "confusion")
    assert values(picture, r"\d+") == ["0", "0", "1", "3"]


def test_the_most_frequent_mistakes():
    assert mistakes([[5, 1, 0], [7, 5, 2], [0, 0, 9]]) == [(7, 1, 0), (2, 1, 2), (1, 0, 1)]


@pytest.mark.parametrize("bits", ["2-2-8", "3-3-8", "8-8-8"])
def test_weights_before_and_after(tmp_path, bits):
    from ternarybert.packed.hf_folder import unpack_to_float

    [model] = read_models([world.save(tmp_path / "m", {}, bits=bits)])
    pictures = weights.pictures(model.packed, unpack_to_float(model.packed), "1-")
    assert [picture.name for picture in pictures] == [
        "1-weights-word-embedding",
        "1-weights-query-layer-2",
        "1-weights-feed-forward-in-layer-2",
        "1-weights-feed-forward-out-layer-2",
    ]
    codes = model.packed.tensors["bert.encoder.layer.1.attention.self.query.weight"].unpack()
    if bits == "2-2-8":
        assert values(pictures[1], r"\d+%") == [f"{(codes == level).mean():.0%}" for level in (-1, 0, 1)]
    assert ("threshold" in pictures[1].caption) == (bits != "8-8-8")


def test_files_are_pictures_that_stand_alone(model):
    picture = charts.score_curve(model.run, "scores")
    assert picture.files.keys() == {"scores.svg", "scores.png"}
    assert picture.files["scores.png"].startswith(b"\x89PNG")
    svg = picture.files["scores.svg"].decode()
    assert ET.fromstring(svg).tag.endswith("}svg")
    assert "prefers-color-scheme" in svg
    assert INK not in svg
    assert "currentColor" in svg
    assert all(found.startswith("scores-") for found in re.findall(r'id="([^"]+)"', svg))
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg)) <= set(re.findall(r'id="([^"]+)"', svg))


def test_the_same_figure_is_the_same_file(model):
    first, second = (charts.loss_curve(model.run, "loss") for _ in range(2))
    assert first == second


def test_scripts_that_matplotlib_has_no_font_for():
    picture = charts.confusion([[1, 2], [3, 4]], ["好", "悪い"], "student", "confusion")
    assert {"好", "悪い"} <= set(words(picture))


@given(st.text(max_size=40), st.integers(1, 30))
def test_printable_text_is_short_and_fits_xml(text, most):
    shown = printable(text, most)
    assert len(shown) <= most
    assert ET.fromstring(f"<a>{shown.replace('&', '&amp;').replace('<', '&lt;')}</a>") is not None


def test_fonts_for_other_scripts_are_used_where_they_are_installed():
    assert charts.fonts(["DejaVu Sans", "Noto Sans CJK SC"]) == ["sans-serif", "Noto Sans CJK SC"]
    assert charts.STYLE["font.family"][0] == "sans-serif"


def test_characters_without_a_font_are_text_in_the_svg_and_noted_of_the_png(caplog):
    """No font has this one, which is for private use."""
    picture = charts.size_accuracy([SizeScore("\ue123", 6 * 2**20, 86.0)], "accuracy", "size")
    assert any("\ue123" in word for word in words(picture))
    assert "size.png" in caplog.text
