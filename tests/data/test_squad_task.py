import json
import zipfile
from dataclasses import replace

import datasets
import numpy as np
import pytest

from ternarybert.data import SQUAD, answering_task, hold_out, load_questions, load_squad, squad_task
from ternarybert.data.squad.questions import Question
from ternarybert.data.squad.task import OWN
from ternarybert.errors import DataError, HubError

from .squad_made import dev_questions, made_questions, made_tokenizer, perfect_logits


def official(questions, version):
    """The official layout, an article for each title."""
    articles = {}
    for q in questions:
        answers = [{"text": a.text, "answer_start": a.start} for a in q.answers]
        asked = {"id": q.id, "question": q.question, "answers": answers}
        asked |= {"is_impossible": not answers} if version == "2.0" else {}
        articles.setdefault(q.title, []).append({"context": q.context, "qas": [asked]})
    return {"version": version, "data": [{"title": title, "paragraphs": p} for title, p in articles.items()]}


def write(path, questions, version="1.1"):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(official(questions, version)), encoding="utf-8")
    return path


def by_id(questions):
    return sorted(questions, key=lambda question: int(question.id))


def test_the_settings_of_the_paper():
    for task in SQUAD.values():
        assert (task.max_length, task.stride, task.max_question, task.max_answer, task.n_best) == (384, 128, 64, 30, 20)
        assert (task.batch_size, task.epochs) == (16, 3)
        assert task.metrics[0] == "f1", "judged at its own threshold, not at the best one for the test"
    assert {name: task.null_threshold for name, task in SQUAD.items()} == {"squad": None, "squad_v2": 0.0}


@pytest.mark.parametrize(("spelling", "name"), [("SQuAD", "squad"), ("squad-v2", "squad_v2"), ("SQUAD_V2", "squad_v2")])
def test_spellings(spelling, name):
    assert squad_task(spelling).name == name


def test_an_unknown_task_gets_a_suggestion():
    with pytest.raises(DataError, match="unknown task 'squad_v3'; did you mean 'squad_v2'"):
        load_squad("squad_v3")


def test_official_files_from_a_folder(tmp_path):
    train, dev = made_questions(9, 1, words=(9, 9)), made_questions(5, 2, words=(9, 9), unanswerable=0.5)
    write(tmp_path / "train-v1.1.json", train)
    data = load_squad("squad", tmp_path)
    assert (by_id(data.train), data.evals) == (train, {})
    write(tmp_path / "two" / "dev-v2.0.json", dev, "2.0")
    with zipfile.ZipFile(tmp_path / "two" / "train-v2.0.json.zip", "w") as archive:
        archive.write(tmp_path / "train-v1.1.json", "train-v2.0.json")
    data = load_squad("squad_v2", tmp_path)
    assert (by_id(data.train), by_id(data.evals["dev"])) == (train, dev)
    assert data.task is SQUAD["squad_v2"]


def test_folders_without_the_task(tmp_path):
    with pytest.raises(DataError, match="nowhere is not a folder"):
        load_squad("squad", tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"holds neither train-v2\.0\.json nor dev-v2\.0\.json"):
        load_squad("squad_v2", tmp_path)
    write(tmp_path / "dev-v1.1.json", made_questions(9, words=(9, 9), unanswerable=0.5))
    with pytest.raises(DataError, match=r"dev: question '\d' has no answer; that is SQuAD 2\.0"):
        load_squad("squad", tmp_path)
    bare = {"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "1", "question": "q"}]}]}]}
    (tmp_path / "dev-v1.1.json").write_text(json.dumps(bare))
    with pytest.raises(DataError, match="dev: the questions have no 'answers'"):
        load_squad("squad", tmp_path)


def test_rows_from_the_hub(monkeypatch):
    questions = made_questions(4, words=(9, 9), unanswerable=0.5)

    def load(name):
        assert name == "rajpurkar/squad_v2"
        answers = [
            {"text": [a.text for a in q.answers], "answer_start": [a.start for a in q.answers]} for q in questions
        ]
        columns = {name: [getattr(q, name) for q in questions] for name in ("id", "title", "context", "question")}
        rows = datasets.Dataset.from_dict({**columns, "answers": answers})
        return datasets.DatasetDict({"train": rows, "validation": rows.select([0, 1])})

    monkeypatch.setattr(datasets, "load_dataset", load)
    data = load_squad("squad_v2")
    assert (data.train, data.evals) == (questions, {"dev": questions[:2]})


def test_an_unreachable_hub_is_one_line_that_says_what_to_do(monkeypatch):
    def unreachable(name):
        raise ConnectionError(f"Couldn't reach '{name}' on the Hub\n(details)")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(HubError, match=r"cannot get rajpurkar/squad .*; pass a folder .*dev-v1\.1\.json") as caught:
        load_squad("squad")
    assert "\n" not in str(caught.value)


def own(path, questions):
    rows = [{"question": q.question, "context": q.context, "answers": [a.text for a in q.answers]} for q in questions]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_the_users_own_questions(tmp_path):
    train = own(tmp_path / "faq.jsonl", made_questions(40, words=(30, 30)))
    evaluation = own(tmp_path / "eval.jsonl", made_questions(10, 1, words=(30, 30), unanswerable=0.5))
    data = load_questions(train)
    assert (data.task.name, data.task.null_threshold) == ("faq", None)
    assert (len(data.train), len(data.evals["dev"])) == (36, 4)
    assert load_questions(train).evals == data.evals  # the same rows for the same seed
    data = load_questions(train, evaluation)
    assert (len(data.train), len(data.evals["dev"]), data.task.null_threshold) == (40, 10, 0.0)
    data = load_questions(None, evaluation)
    assert (data.train, len(data.evals["dev"]), data.task.name) == (None, 10, "eval")
    assert load_questions(train, eval_share=0).evals == {}
    with pytest.raises(DataError, match="no file with questions is given"):
        load_questions(None)


def test_no_article_is_on_both_sides():
    questions = dev_questions()
    kept, held = hold_out(questions, 0.2, seed=1)
    assert not {q.title for q in kept} & {q.title for q in held}
    assert sorted([*kept, *held], key=lambda q: q.id) == sorted(questions, key=lambda q: q.id)
    assert 0.2 * len(questions) <= len(held) < 0.5 * len(questions)
    assert hold_out(questions, 0.2, seed=2)[1] != held
    untitled = [Question("Q?", context, (), f"{context}{i}") for context in "abc" for i in range(4)]
    kept, held = hold_out(untitled, 0.3)
    assert (len(kept), len({q.context for q in held})) == (8, 1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("sizes", "held"),
    [
        ((99, 1), {1}),
        ((50, 51), {50}),
        ((80, 8, 7, 5), {12, 13, 15}),
        ((1, 30, 30, 39), {31}),
        ((2, 25, 25, 25, 23), {25}),
        ((3, 200, 200), {203}),
    ],
)
def test_a_large_text_is_held_out_only_where_it_must(sizes, held, seed):
    questions = [Question("Q?", f"text {i}", (), f"{i} {j}") for i, size in enumerate(sizes) for j in range(size)]
    assert len(hold_out(questions, 0.1, seed)[1]) in held


def test_what_cannot_be_held_out():
    with pytest.raises(DataError, match="all questions are about one text"):
        hold_out([Question("Q?", "text", (), str(i)) for i in range(9)])
    with pytest.raises(DataError, match="above 0 and below 1, not 1"):
        hold_out(made_questions(3), 1)


def test_version_2_end_to_end():
    """Features, logits, answers, score, threshold: a model that knows, one that guesses, one that is too shy."""
    questions = made_questions(200, words=(5, 400), unanswerable=0.4, answer_words=3)
    silent = sum(not q.answers for q in questions)
    assert 60 < silent < 100
    task = SQUAD["squad_v2"]
    windows = task.windower(made_tokenizer()).windows(questions)
    assert len(windows) > 2 * len(questions)

    knows = task.predict(windows, *perfect_logits(windows))
    scores = task.score(questions, knows)
    assert scores["exact"] == scores["HasAns_exact"] == scores["NoAns_exact"] == scores["best_exact"] == 100
    assert (scores["NoAns_total"], scores["total"]) == (silent, 200)
    assert all((p.answer is None) == (not q.answers) for p, q in zip(knows, questions, strict=True))

    guesses = task.predict(windows, *perfect_logits(windows, peak=3.0, noise=1.5))
    noisy = task.score(questions, guesses)
    assert 5 < noisy["exact"] <= noisy["f1"] < 95
    assert noisy["best_f1"] >= noisy["f1"]
    moved = replace(task, null_threshold=noisy["best_f1_thresh"])
    again = moved.score(questions, moved.predict(windows, *perfect_logits(windows, peak=3.0, noise=1.5)))
    assert again["f1"] == pytest.approx(noisy["best_f1"])

    starts, ends = perfect_logits(windows)
    starts[:, 0] += 25  # sees no answer anywhere, but less so where there is one
    shy = task.score(questions, task.predict(windows, starts, ends))
    assert (shy["HasAns_exact"], shy["NoAns_exact"], shy["best_exact"]) == (0, 100, 100)
    bold = replace(task, null_threshold=shy["best_exact_thresh"])
    assert bold.score(questions, bold.predict(windows, starts, ends))["exact"] == 100


@pytest.mark.parametrize("max_length", [64, 128, 384])
def test_every_answer_is_in_some_window_however_short_these_are(max_length):
    questions = made_questions(100, words=(5, 400), answer_words=3)
    task = replace(SQUAD["squad"], max_length=max_length)
    windows = task.windower(made_tokenizer()).windows(questions)
    assert task.score(questions, task.predict(windows, *perfect_logits(windows)))["exact"] == 100


def test_version_1_always_answers():
    questions = made_questions(20, words=(5, 50))
    task = SQUAD["squad"]
    windows = task.windower(made_tokenizer()).windows(questions)
    starts, ends = perfect_logits(windows)
    starts[:, 0] += 99
    predictions = task.predict(windows, starts, ends)
    assert all(prediction.answer for prediction in predictions)
    assert task.score(questions, predictions) == {"exact": 100, "f1": 100, "total": 20}
    assert np.all([prediction.null_difference > 0 for prediction in predictions])


@pytest.mark.parametrize("name", list(SQUAD))
def test_a_config_says_how_to_ask(name):
    task = replace(SQUAD[name], max_length=96, stride=32)
    if name == "squad_v2":
        task = replace(task, null_threshold=-1.25)
    config = json.loads(json.dumps({"model_type": "bert", "question_answering": task.answering()}))
    assert answering_task(config) == task
    assert answering_task({}) == SQUAD["squad"]


def test_a_model_is_asked_as_it_is_used():
    """With its windows, unless shorter ones are asked for, and silent only where it would be."""

    def asked(task, **said):
        task = task.with_model_settings({"question_answering": said})
        return task.max_length, task.stride, task.null_threshold

    silent, own = SQUAD["squad_v2"], replace(SQUAD["squad"], version=OWN)
    assert asked(SQUAD["squad"], max_length=512, stride=200, null_threshold=-1.0) == (512, 200, None)
    assert asked(replace(SQUAD["squad"], max_length=256), max_length=512) == (256, 128, None)
    assert asked(replace(SQUAD["squad"], max_length=512), max_length=96) == (96, 128, None)
    assert asked(silent, null_threshold=-1.0) == (384, 128, -1.0)
    assert asked(silent, null_threshold=None) == (384, 128, np.inf)
    assert asked(own, null_threshold=-1.0) == (384, 128, -1.0)
    assert asked(own, null_threshold=None) == (384, 128, None)
    assert silent.with_model_settings({}) == silent
    assert silent.with_model_settings({"question_answering": {}}).answering()["null_threshold"] is None


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (3, "is 3, not an object"),
        ({"stride": 0}, r"question_answering.stride' is 0, not a whole number"),
        ({"max_length": "384"}, "max_length' is '384'"),
        ({"n_best": True}, "n_best' is True"),
        ({"null_threshold": "low"}, "null_threshold' is 'low', not a number"),
        ({"null_threshold": float("nan")}, "is nan, not a number"),
    ],
)
def test_a_config_that_says_nonsense(said, complaint):
    with pytest.raises(DataError, match=complaint):
        answering_task({"question_answering": said})
