"""The page: well-formed, without anything from elsewhere, with users' words as words; and where it is written."""

import re
from html.parser import HTMLParser

import pytest

from ternarybert.errors import FolderExistsError
from ternarybert.packed import read, write
from ternarybert.packed.inspect import inspect_model
from ternarybert.report.build import build, link_figures
from ternarybert.report.page import html, write_page
from ternarybert.storage import is_report
from tests.packed.models import random_model

from . import world

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Reader(HTMLParser):
    """Collects tags, and fails where they do not nest."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parse(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return build([world.save(tmp_path_factory.mktemp("page") / "small", world.metrics())])


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    place = tmp_path_factory.mktemp("several")
    changes = {"small": {}, "other": {"bits": "3-3-8"}}
    return build([world.save(place / name, world.metrics(), **change) for name, change in changes.items()])


def test_a_page_of_its_own(page):
    text = html(page)
    reader = parse(text)
    for tag, attributes in reader.tags:
        for name in ("src", "href", "xlink:href", "action", "data"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
        assert tag != "script"
        assert not any(name.startswith("on") for name in attributes)
    assert not re.findall(r"url\((?!#)", text)
    assert "@import" not in text


def test_ids_are_unique_and_links_lead_to_them(several):
    reader = parse(html(several))
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    targets = {attributes["href"] for tag, attributes in reader.tags if tag == "a"}
    assert targets == {"#chapter-1", "#chapter-2", "#chapter-3"}
    assert {target[1:] for target in targets} <= set(ids)


def test_users_words_are_words(page):
    text = html(page)
    reader = parse(text)
    assert "<script" not in text
    assert "<img" not in text
    assert f"Scores of task {world.TASK}" in reader.text
    assert any("a <machine>" in said for said in reader.text)
    assert any("<script>alert" in said for said in reader.text)  # a label of the confusion matrix


def test_every_picture_has_words_and_every_table_a_caption(page):
    reader = parse(html(page))
    pictures = [attributes for _, attributes in reader.tags if attributes.get("role") == "img"]
    assert len(pictures) == len(page.pictures) > 0
    assert all(len(attributes["aria-label"]) > 20 for attributes in pictures)
    tables = [attributes for tag, attributes in reader.tags if tag == "table"]
    assert tables and all(attributes["aria-label"] for attributes in tables)
    assert [tag for tag, _ in reader.tags].count("figcaption") == len(pictures)


def test_the_numbers_come_first(page):
    reader = parse(html(page))
    said = "\n".join(part.strip() for part in reader.text if part.strip())
    sizes = inspect_model(random_model())
    assert f"{sizes.mib:.2f} MiB" in said
    facts = {fact.name: (fact.value, fact.remark) for fact in page.chapters[0].facts}
    assert facts["accuracy, best"][0] == "81.25" and "83.50" in facts["accuracy, best"][1]
    assert facts["accuracy, last"][0] == "80.00" and "30" in facts["accuracy, last"][1]
    rows = {row[0]: list(row[1:]) for part in page.chapters[0].parts for table in part.tables for row in table.rows}
    assert rows["dev: agreement"] == ["", "85.00", "88.50"]  # the teacher has none


def test_without_a_teacher_it_says_how_to_get_more(page):
    assert "--teacher TEACHER" in html(page)


def test_a_folder_that_tells_no_scores(tmp_path):
    page = build([world.save(tmp_path / "bare", {})])
    assert [picture.name for picture in page.pictures] == ["levels", "zeros"]
    assert "no scores" in html(page)


def test_a_folder_of_eight_bits(tmp_path):
    page = build([world.save(tmp_path / "bare", {}, bits="8-8-8")])
    assert [picture.name for picture in page.pictures] == ["zeros"]


def test_a_folder_without_losses(tmp_path):
    page = build([world.save(tmp_path / "old", world.metrics(losses=False))])
    assert "loss" not in [picture.name for picture in page.pictures]
    assert "an older version" in html(page)


def test_many_labels_become_a_list_of_mistakes(tmp_path):
    labels = [f"label {i}" for i in range(13)]
    counts = [[2 if i == j else 0 for j in range(13)] for i in range(13)]
    counts[3][5], counts[4][1] = 9, 11
    metrics = world.metrics() | {"confusion": {"labels": labels, "teacher": None, "student": counts}}
    page = build([world.save(tmp_path / "many", metrics)])
    [part] = [part for part in page.chapters[0].parts if part.title == "Confusion"]
    assert part.tables[0].rows == [["label 4", "label 1", "11"], ["label 3", "label 5", "9"]]


def test_several_are_compared_and_told_apart(several):
    assert [chapter.title for chapter in several.chapters] == ["All models", "small", "other"]
    [table] = several.chapters[0].parts[0].tables
    assert [row[0] for row in table.rows] == ["small", "other"]
    assert [row[9] for row in table.rows] == ["2-2-8", "3-3-8"]
    names = [picture.name for picture in several.pictures]
    assert len(set(names)) == len(names)
    assert names[0] == "size-1"


def test_written_and_written_again(folder, page):
    place = folder / "report"
    write_page(place, page)
    names = {path.name for path in place.iterdir()}
    assert names == {"report.html", *(f"{p.name}.{kind}" for p in page.pictures for kind in ("svg", "png"))}
    assert (place / "report.html").read_text(encoding="utf-8") == html(page)
    (place / "stale.png").write_bytes(b"")
    write_page(place, page)
    assert {path.name for path in place.iterdir()} == names
    assert [path.name for path in folder.iterdir() if "report" in path.name] == ["report"]
    read(folder)  # a packed folder with a report is still one


@pytest.mark.parametrize("name", ["notes.txt", "model.safetensors"])
def test_something_else_is_not_replaced(folder, page, name):
    place = folder / "report"
    write_page(place, page)
    (place / name).write_text("mine")
    assert not is_report(place)
    with pytest.raises(FolderExistsError):
        write_page(place, page)
    assert (place / name).read_text() == "mine"


def test_a_model_may_replace_one_with_a_report_but_not_with_other_folders(folder, page):
    write_page(folder / "report", page)
    write(folder, random_model(), force=True)
    assert not (folder / "report").exists()
    (folder / "report").mkdir()
    (folder / "report" / "notes.txt").write_text("mine")
    with pytest.raises(FolderExistsError, match="report"):
        write(folder, random_model(), force=True)


def test_the_card_links_the_figures_once(folder, page):
    place = folder / "report"
    write_page(place, page)
    for _ in range(2):
        assert link_figures(folder, place, page.pictures)
    card = (folder / "README.md").read_text()
    assert card.startswith("# A card\n\n")
    targets = re.findall(r"\]\(([^)]+)\)", card)
    assert targets[0] == "report/report.html"
    assert len(targets) == len(set(targets)) == 1 + len(page.pictures)
    assert all((folder / target).is_file() for target in targets)
    assert link_figures(folder, place, page.pictures[:1])
    (folder / "README.md").write_text((folder / "README.md").read_text() + "\nmore words\n")
    assert link_figures(folder, place, page.pictures[:2])
    card = (folder / "README.md").read_text()
    assert len(re.findall(r"\]\(", card)) == 3
    assert card.endswith("\nmore words\n")


def test_no_links_to_what_lies_elsewhere(folder, page, tmp_path):
    write_page(tmp_path / "elsewhere", page)
    assert not link_figures(folder, tmp_path / "elsewhere", page.pictures)
    assert (folder / "README.md").read_text() == "# A card\n"
    (folder / "README.md").unlink()
    assert not link_figures(folder, folder / "report", page.pictures)
    assert not (folder / "README.md").exists()
