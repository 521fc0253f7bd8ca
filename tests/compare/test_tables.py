"""The figure: every row is on it, labels apart, and it can be read without colors."""

import re

from ternarybert.compare.tables import ComparisonRow, draw


def rows():
    made = [ComparisonRow("teacher", "32-32-32", "teacher", 90 << 20, 1.0, {"accuracy": 81.0})]
    for i, family in enumerate(["ours", "quantization", "compression"] * 4):
        made.append(ComparisonRow(f"method {i}", "2-8-8", family, (6 + i % 3) << 20, 9.0, {"accuracy": 70.0 + i % 5}))
    return [*made, ComparisonRow("broken", "2-2-8", "ours", failed="no labels")]


def test_every_row_is_named(tmp_path):
    draw(rows(), "accuracy", "made", tmp_path / "figure.svg", tmp_path / "figure.png")
    picture = (tmp_path / "figure.svg").read_text()
    for row in rows()[:-1]:
        text = row.label if row.family == "teacher" else f"{row.label} {row.bits}"
        assert f"<!-- {text} -->" in picture
    assert "broken" not in picture
    for label in ("TernaryBERT (this package)", "other quantization", "size, MiB"):
        assert re.search(rf"<!-- {re.escape(label)} -->", picture)
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
