"""The report page as a value: chapters of parts, parts of text, tables and pictures. A template renders it as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import ternarybert
from ternarybert.report.charts import Picture
from ternarybert.storage import REPORT_PAGE, check_output_folder, is_report, replace_folder

_TEMPLATE = "page.html.jinja"


@dataclass(frozen=True)
class Fact:
    """A number at the top of a chapter."""

    name: str
    value: str
    remark: str = ""


@dataclass(frozen=True)
class ReportTable:
    """Formatted cells; the first cell of a row is its name."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Part:
    """A section: heading, text, tables and pictures."""

    title: str
    text: Sequence[str] = ()
    tables: Sequence[ReportTable] = ()
    pictures: Sequence[Picture] = ()
    long_tables: Sequence[ReportTable] = ()  # collapsed


@dataclass(frozen=True)
class Chapter:
    """A chapter about one model or about several."""

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
        """All pictures in page order."""
        return [picture for chapter in self.chapters for part in chapter.parts for picture in part.pictures]


def html(page: Page) -> str:
    """Render the page as one self-contained file; everything except our own SVG is escaped."""
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.get_template(_TEMPLATE).render(page=page)


def check_output(output: Path) -> None:
    """Reject an existing output unless it is an older report."""
    advice = "it holds more than a report; choose another --output"
    check_output_folder(output, replaceable=output.is_dir() and is_report(output), advice=advice)


def write_page(output: Path, page: Page) -> None:
    """Write the page and its figures, all or nothing; an older report is replaced."""
    target = output.absolute()
    with replace_folder(target, lambda: check_output(target)) as staging:
        (staging / REPORT_PAGE).write_text(html(page), encoding="utf-8")
        for picture in page.pictures:
            for name, content in picture.files.items():
                (staging / name).write_bytes(content)
