"""Entities among the tags of words, and how many were found: the figures of the package `seqeval`, in plain Python.

A tag is `O` (outside), or a prefix and a type: `B-person`, `I-person`; BIOES also has `E-` for the last word of an
entity and `S-` for one of a single word. Two readings of the same tags:

- default, as of the CoNLL evaluation: every run of words with one type is an entity; it ends where the type changes,
  before B and S, and after E and S. An entity may begin with I.
- strict: an entity begins with B or S. In BIOES one of several words must end with E. Everything else is no entity.

Tags without prefixes, such as parts of speech, have no entities; each word counts by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

Scheme: TypeAlias = Literal["BIO", "BIOES", "plain"]
Tags: TypeAlias = Sequence[str]

OUTSIDE = "O"
_PREFIXES = ("B-", "I-", "E-", "S-")


class EntitySpan(NamedTuple):
    """An entity of a sentence: its type, its first and its last word."""

    kind: str
    first: int
    last: int


class EntityCounts(NamedTuple):
    """How many entities there are, were predicted, and were predicted rightly."""

    wanted: int
    predicted: int
    hits: int

    @property
    def precision(self) -> float:
        """The share of the predicted ones that are right."""
        return self.hits / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of those that there are that were found."""
        return self.hits / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return 2 * self.hits / (self.wanted + self.predicted) if self.hits else 0.0


def has_prefix(tag: str) -> bool:
    """Whether a tag begins with B-, I-, E- or S-."""
    return tag.startswith(_PREFIXES) and len(tag) > 2


def scheme_of(tags: Iterable[str]) -> Scheme:
    """BIOES if there is an E- or S-, BIO with other prefixes, else plain."""
    prefixes = {tag[0] for tag in tags if has_prefix(tag)}
    return "BIOES" if prefixes & {"E", "S"} else "BIO" if prefixes else "plain"


def tag_parts(tag: str) -> tuple[str, str]:
    """The prefix and the type: `B-person` as B and person; `O` has no type."""
    return tag[0], tag[1:].split("-", maxsplit=1)[-1] or "_"


def kind_of(tag: str, scheme: Scheme) -> str:
    """What a word is, without the prefix of its tag."""
    return tag if scheme == "plain" or tag == OUTSIDE else tag_parts(tag)[1]


def spread(tag: str, parts: int) -> list[str]:
    """The tags of a word's parts: B-x of three is B-x, I-x, I-x; S-x, in BIOES, is B-x, I-x, E-x."""
    prefix, kind = tag_parts(tag)
    if not has_prefix(tag) or parts < 2:
        return [tag] * parts
    first = "B" if prefix in "BS" else "I"
    last = "E" if prefix in "ES" else "I"
    return [f"{first}-{kind}", *([f"I-{kind}"] * (parts - 2)), f"{last}-{kind}"]


def gathered(tags: Tags) -> str:
    """The tag of a word, from those of its parts: the first part's; if the last part has E-, the entity ends here."""
    (prefix, kind), last = tag_parts(tags[0]), tag_parts(tags[-1])
    if len(tags) == 1 or not has_prefix(tags[0]) or prefix not in "BI" or last != ("E", kind):
        return tags[0]
    return f"{'S' if prefix == 'B' else 'E'}-{kind}"


def entities(tags: Tags) -> list[EntitySpan]:
    """The entities of a sentence, read by the default rules."""
    found: list[EntitySpan] = []
    parts = [tag_parts(tag) for tag in tags]
    for i, (prefix, kind) in enumerate(parts):
        if prefix == OUTSIDE:
            continue
        before = parts[i - 1] if i else (OUTSIDE, "")
        if before[0] in "BI" and before[1] == kind and prefix in "IE":
            found[-1] = found[-1]._replace(last=i)
        else:
            found.append(EntitySpan(kind, i, i))
    return found


def strict_entities(tags: Tags, scheme: Scheme) -> list[EntitySpan]:
    """The entities of a sentence whose tags follow the scheme."""
    parts = [tag_parts(tag) for tag in tags]
    found = []
    for i, (prefix, kind) in enumerate(parts):
        if prefix == "S":
            found.append(EntitySpan(kind, i, i))
        if prefix != "B":
            continue
        last = i
        while last + 1 < len(parts) and parts[last][0] in "BI" and _continues(parts[last + 1], kind):
            last += 1
        if scheme == "BIO" or parts[last][0] == "E":
            found.append(EntitySpan(kind, i, last))
    return found


def _continues(part: tuple[str, str], kind: str) -> bool:
    return part[0] in "IE" and part[1] == kind


def count_entities(
    predicted: Sequence[Tags], wanted: Sequence[Tags], scheme: Scheme, *, strict: bool = False
) -> dict[str, EntityCounts]:
    """The counts of every type that occurs on either side, in alphabetical order."""

    def of(sentences: Sequence[Tags]) -> set[tuple[int, EntitySpan]]:
        return {(row, entity) for row, tags in enumerate(sentences) for entity in _read(tags, scheme, strict)}

    ours, theirs = of(predicted), of(wanted)
    totals = [Counter(entity.kind for _, entity in some) for some in (theirs, ours, ours & theirs)]
    kinds = sorted(totals[0] | totals[1])
    return {kind: EntityCounts(*(total[kind] for total in totals)) for kind in kinds}


def _read(tags: Tags, scheme: Scheme, strict: bool) -> list[EntitySpan]:
    return strict_entities(tags, scheme) if strict else entities(tags)


def in_all(counts: dict[str, EntityCounts]) -> EntityCounts:
    """The counts of all types together."""
    return EntityCounts(*(sum(numbers) for numbers in zip(*counts.values(), strict=True))) if counts else NOTHING


NOTHING = EntityCounts(0, 0, 0)


def word_counts(predicted: Sequence[Tags], wanted: Sequence[Tags]) -> dict[str, EntityCounts]:
    """The same for tags without prefixes: each word counts by itself."""
    pairs = Counter(_pairs(predicted, wanted))
    ours: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    for (one, other), count in pairs.items():
        ours[one] += count
        theirs[other] += count
    return {tag: EntityCounts(theirs[tag], ours[tag], pairs[tag, tag]) for tag in sorted(ours | theirs)}


def _pairs(predicted: Sequence[Tags], wanted: Sequence[Tags]) -> Iterator[tuple[str, str]]:
    for ours, theirs in zip(predicted, wanted, strict=True):
        yield from zip(ours, theirs, strict=True)


def word_accuracy(predicted: Sequence[Tags], wanted: Sequence[Tags]) -> float:
    """The share of words whose tag is right."""
    same = [one == other for one, other in _pairs(predicted, wanted)]
    return sum(same) / len(same) if same else 0.0
