"""Questions and contexts: the answer is a piece of the context, whatever its length; or there is none."""

import dataclasses
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BertForQuestionAnswering

import ternarybert
from ternarybert import packed
from ternarybert.data.squad.questions import Question
from ternarybert.data.squad.task import SQUAD
from ternarybert.errors import InputError
from ternarybert.recipe import PRESETS
from ternarybert.runtime import Answer
from ternarybert.runtime.model import Answerer, chunks
from ternarybert.student import make_student
from ternarybert.training.export import packed_model
from tests import tiny
from tests.runtime.folders import save_student, save_tokenizer

QUESTION = "was the film good"
CONTEXT = "The movie was great, and the plot: very fun! We hated it not."
NAMES = ("input_ids", "token_type_ids", "attention_mask")
UNKNOWN = "забавно"  # a word that the tokenizer does not know
# Some end with a mark on their last letter, which the tokenizer drops.
SCRIPTS = {
    "arabic": "جَيّدٌ",
    "chinese": "好",
    "cyrillic": UNKNOWN,
    "emoji": "👍🏽",
    "greek": "καλή",
    "hebrew": "טוֹב",
    "hindi": "बहु",
    "korean": "좋다",
    "thai": "ดี",
}


@pytest.fixture(params=["native", "oracle"])
def model(folders, request):
    with ternarybert.load(folders("ForQuestionAnswering"), engine=request.param) as loaded:
        yield loaded


def test_an_answer_is_a_piece_of_the_context(model):
    answer = model.predict((QUESTION, CONTEXT))
    assert isinstance(model, Answerer)
    assert isinstance(answer, Answer)
    assert CONTEXT[answer.start : answer.end] == answer.text
    assert 0 < answer.score <= 1
    assert model.predict([(QUESTION, CONTEXT)] * 3) == [answer] * 3
    assert answer.as_dict() == {
        "answer": answer.text,
        "score": answer.score,
        "start": answer.start,
        "end": answer.end,
    }


def test_the_answer_of_the_students_logits(folders, model):
    """The span with the highest sum of torch's logits, found by looking at all of them."""
    folder = folders("ForQuestionAnswering")
    encoded = AutoTokenizer.from_pretrained(folder)(QUESTION, CONTEXT, return_tensors="pt", return_offsets_mapping=True)
    places, parts = encoded.pop("offset_mapping")[0].tolist(), encoded.sequence_ids(0)
    with torch.no_grad():
        result = ternarybert.load_torch(folder).eval()(**encoded)
    start, end = result.start_logits[0].numpy(), result.end_logits[0].numpy()
    tokens = [i for i, part in enumerate(parts) if part == 1]
    best = max(((i, j) for i in tokens for j in tokens if i <= j < i + 30), key=lambda s: start[s[0]] + end[s[1]])
    assert model.predict((QUESTION, CONTEXT)).text == CONTEXT[places[best[0]][0] : places[best[1]][1]]
    logits = model.logits((QUESTION, CONTEXT))
    np.testing.assert_allclose(logits, np.stack([start, end], -1), rtol=0, atol=1e-5)


def test_long_contexts_are_read_to_their_end(model):
    """No notice: nothing is left out."""
    long = "The plot was dull. " * 60 + CONTEXT
    answer = model.predict((QUESTION, long))
    assert long[answer.start : answer.end] == answer.text


def test_no_answer(model):
    model.task = dataclasses.replace(model.task, null_threshold=-1e9)
    assert model.predict((QUESTION, CONTEXT)).text is None
    model.task = dataclasses.replace(model.task, null_threshold=1e9)
    assert model.predict((QUESTION, CONTEXT)).text is not None


def test_the_first_answer_does_not_wait_for_other_questions(model):
    """A context may be a book."""
    asked = iter([(QUESTION, CONTEXT)] * 9)
    answers = model.stream(asked)
    assert next(answers) == model.predict((QUESTION, CONTEXT))
    assert len(list(asked)) == 8


def test_a_model_on_one_thread_starts_none_of_the_tokenizers(folders):
    with ternarybert.load(folders("ForQuestionAnswering"), num_threads=1) as model:
        windower = model._current_windower()
        windower._tokenizer = SimpleNamespace(encode=windower._tokenizer.encode)  # encode_batch would start some
        assert len(model.predict([(QUESTION, CONTEXT), ("who", "The plot was dull.")])) == 2


def test_a_changed_task_cuts_other_windows(model):
    before = model._windows([Question(QUESTION, CONTEXT)])
    model.task = dataclasses.replace(model.task, max_length=len(before[0]) - 2)
    assert len(model._windows([Question(QUESTION, CONTEXT)])) > len(before)


@pytest.mark.parametrize("context", ["", "  \n ", "\x00\x01"])
def test_an_empty_context_has_no_answer(model, context):
    empty = Answer(None, 1.0, None, None)
    assert model.predict((QUESTION, context)) == empty
    answers = model.predict([(QUESTION, CONTEXT), (QUESTION, context), ("", CONTEXT)])
    assert answers[0].text is not None
    assert answers[1] == empty
    assert answers[2].text is not None


def test_half_a_character_is_named(model):
    with pytest.raises(InputError, match=r"why \\ud83d"):
        model.predict([(QUESTION, CONTEXT), ("why \ud83d", CONTEXT)])


def test_a_bert_of_one_token_type(tmp_path):
    folder = save_student(tmp_path / "one", "ForQuestionAnswering", type_vocab_size=1)
    answer = ternarybert.load(folder).predict((QUESTION, CONTEXT))
    assert CONTEXT[answer.start : answer.end] == answer.text


def test_fewer_questions_at_a_time_where_they_take_long(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("ternarybert.runtime.model.time.monotonic", lambda: now[0])
    sizes = []
    for chunk in chunks(iter(["short"] * 4095 + ["long"] * 4095), first=1):
        now[0] += sum(0.0 if text == "short" else 0.5 for text in chunk)
        sizes.append(len(chunk))
    assert sizes[:4] == [1, 2, 4, 8]
    assert max(sizes) == 2048
    assert sizes[-2] <= 2, "a second's worth"


def test_nothing_asked(model):
    assert model.predict([]) == []


@pytest.mark.parametrize("wrong", ["a question alone", ["a", "b"], [("a", "b"), "c"]])
def test_a_question_needs_a_context(model, wrong):
    with pytest.raises(InputError, match="question, context"):
        model.predict(wrong)


def test_what_it_was_trained_on_decides_whether_there_may_be_none(folders):
    said = {"null_threshold": -1.5, "stride": 64}
    with ternarybert.load(folders("ForQuestionAnswering", question_answering=said)) as model:
        assert model.task == replace(SQUAD["squad_v2"], **said)
    with ternarybert.load(folders("ForQuestionAnswering")) as model:
        assert model.task == SQUAD["squad"]


@pytest.fixture(scope="module")
def finder_folder(tmp_path_factory):
    """A packed model that finds the one word which its tokenizer does not know: its head looks for that embedding."""
    known, folder = tiny.tokenizer(), tmp_path_factory.mktemp("finder") / "model"
    torch.manual_seed(0)
    made = BertForQuestionAnswering(tiny.config(vocab_size=len(known), question_answering={"stride": 16}))
    words = made.bert.embeddings.word_embeddings.weight
    with torch.no_grad():
        words.normal_()
        made.qa_outputs.weight[:] = words[known.unk_token_id]
    packed.write(folder, packed_model(make_student(made, PRESETS["default"]).eval(), PRESETS["default"]))
    save_tokenizer(folder, types=True)
    return folder


@pytest.fixture(scope="module", params=["native", "oracle"])
def finder(finder_folder, request):
    with ternarybert.load(finder_folder, engine=request.param) as loaded:
        yield loaded


def text_of(count, place, word=UNKNOWN):
    """Words at random, with one that is not known at a place; where it begins."""
    words = np.random.default_rng(0).choice(tiny.WORDS, count).tolist()
    words[place] = word
    return " ".join(words), sum(len(word) + 1 for word in words[:place])


def test_an_answer_in_any_window(finder_folder):
    """At every place of a context of many windows: at their edges, and where they overlap."""
    texts = [text_of(150, place) for place in range(150)]
    with ternarybert.load(finder_folder) as finder:
        assert len(finder._current_windower().windows([Question(QUESTION, texts[0][0])])) == 7
        answers = finder.predict([(QUESTION, context) for context, _ in texts])
    assert [(answer.text, answer.start) for answer in answers] == [(UNKNOWN, start) for _, start in texts]


@pytest.mark.parametrize("place", [0, 4_321, 9_999])
def test_ten_thousand_words(finder_folder, place):
    context, start = text_of(10_000, place)
    with ternarybert.load(finder_folder) as finder:
        answer = finder.predict((QUESTION, context))
    assert (answer.text, answer.start, answer.end) == (UNKNOWN, start, start + len(UNKNOWN))


def test_ten_thousand_words_as_torch_reads_them(folders):
    """All windows at once in torch, and the best span of their logits."""
    folder, (context, _) = folders("ForQuestionAnswering"), text_of(10_000, 5_000)
    with ternarybert.load(folder) as model:
        answer, windows = (
            model.predict((QUESTION, context)),
            model._current_windower().windows([Question(QUESTION, context)]),
        )
        task = model.task
    rows = [{name: window.example()[name].tolist() for name in NAMES} for window in windows]
    with torch.no_grad():
        made = ternarybert.load_torch(folder).eval()(**tiny.tokenizer().pad(rows, return_tensors="pt"))
    (wanted,) = task.predict(windows, made.start_logits.numpy(), made.end_logits.numpy())
    assert len(windows) > 170
    assert (answer.text, answer.start, answer.end) == wanted.answer[:3]
    assert answer.score == pytest.approx(wanted.score, rel=1e-4)


@pytest.mark.parametrize("question", ["", " \n", "\u200b", "было ли?"])
def test_an_empty_question_and_one_in_another_script(finder, question):
    context, start = text_of(100, 70)
    answer = finder.predict((question, context))
    assert (answer.text, answer.start) == (UNKNOWN, start)


@pytest.mark.parametrize("script", SCRIPTS)
def test_answers_in_any_script(finder, script):
    word = SCRIPTS[script]
    for context, start in (text_of(100, 70, word), (f"the film: {word}", 10), (f"{word}!", 0)):
        answer = finder.predict((QUESTION, context))
        assert (answer.text, answer.start, answer.end) == (word, start, start + len(word))


@pytest.mark.parametrize("script", SCRIPTS)
def test_texts_in_any_script(folders, script):
    """Not one word is known; the answer is still a piece of the text, the same in either engine."""
    question, context = f"{SCRIPTS[script]}?", f"{SCRIPTS[script]}。 " * 80
    models = [ternarybert.load(folders("ForQuestionAnswering"), engine=engine) for engine in ("native", "oracle")]
    answer, expected = (model.predict((question, context)) for model in models)
    assert answer.text
    assert (answer.text, answer.start, answer.end) == (expected.text, expected.start, expected.end)
    assert context[answer.start : answer.end] == answer.text
