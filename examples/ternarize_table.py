"""Ternarize a classifier on your own table: fine-tune a teacher, distil a ternary student, print how they compare.

python examples/ternarize_table.py bert-base-uncased reviews.csv --text review --label stars --output out

The folder then has `teacher`, an ordinary Hugging Face model, and `student`, the packed one. Needs the `train` extra.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import ternarybert


def main() -> None:
    """Parse, train twice, print the scores of both models and the size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="pre-trained encoder: a folder or a hub id")
    parser.add_argument("table", help="CSV, TSV, JSONL or parquet")
    parser.add_argument("--text", help="column of the text")
    parser.add_argument("--label", help="column of the label")
    parser.add_argument("--epochs", type=float, help="passes over the rows; default: what the recipe says")
    parser.add_argument("--output", type=Path, default=Path("out"))
    arguments = parser.parse_args()

    data = ternarybert.load_table(arguments.table, text=arguments.text, label=arguments.label)
    teacher, student = str(arguments.output / "teacher"), arguments.output / "student"
    options = ternarybert.TrainingOptions(evaluations=3)
    ternarybert.finetune(arguments.model, data, teacher, None, options)

    recipe = ternarybert.Recipe.load("default").override({"schedule.epochs": arguments.epochs})
    ternarybert.ternarize(teacher, data, student, recipe, options)

    metrics = json.loads((student / "metrics.json").read_text(encoding="utf-8"))
    metric, scores = metrics["metric"], metrics["student"]["final"]["scores"]
    size = (student / "ternarybert.safetensors").stat().st_size
    print(f"teacher  {metric} {next(iter(metrics['teacher'].values()))[metric]:.1f}  {metrics['teacher_bytes']} bytes")
    print(f"student  {metric} {scores[metric]:.1f}  {size} bytes")
    print(f"they agree on {scores['agreement']:.1f} % of the evaluation rows")


if __name__ == "__main__":
    main()
