"""The page as a value: chapters of parts, parts of words, tables and pictures; one template makes HTML of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import ternarybert
from ternarybert.report.picture import Picture
from ternarybert.storage import REPORT_PAGE, check_output_folder, is_report, replace_folder

_TEMPLATE = "page.html.jinja"


@dataclass(frozen=True)
class Fact:
    """A number that comes first."""

    name: str
    value: str
    remark: str = ""


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; the first of a row names it."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Part:
    """A heading and what is below it."""

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    long_tables: Sequence[Table] = ()  # folded until asked for


@dataclass(frozen=True)
class Chapter:
    """A model, or several side by side."""

    title: str
    parts: Sequence[Part]
    facts: Sequence[Fact] = ()


@dataclass(frozen=True)
class Page:
    """A whole report."""

    title: str
    subtitle: str
    chapters: Sequence[Chapter]
    version: str = ternarybert.__version__

    @property
    def pictures(self) -> list[Picture]:
        """All figures in their order."""
        return [picture for chapter in self.chapters for part in chapter.parts for picture in part.pictures]


def html(page: Page) -> str:
    """The page as one file that needs no other; everything but our own figures is escaped."""
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.get_template(_TEMPLATE).render(page=page)


def check_output(output: Path) -> None:
    """Refuse a place that is taken by anything but an older report."""
    advice = "it holds more than a report; choose another --output"
    check_output_folder(output, replaceable=output.is_dir() and is_report(output), advice=advice)


def write_page(output: Path, page: Page) -> None:
    """Write the page and its figures, all or nothing; an older report gives way."""
    place = output.absolute()
    with replace_folder(place, lambda: check_output(place)) as staging:
        (staging / REPORT_PAGE).write_text(html(page), encoding="utf-8")
        for picture in page.pictures:
            for name, content in picture.files.items():
                (staging / name).write_bytes(content)
