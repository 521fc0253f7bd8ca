"""Questions from end to end: a teacher, its student in two stages, scores, thresholds and the folder."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoTokenizer

import ternarybert
from ternarybert import packed
from ternarybert.data import SQUAD, TaskData, answering_task
from ternarybert.data.squad.task import OWN
from ternarybert.errors import DataError, UnsupportedModelError
from ternarybert.recipe import ONE_STAGE, PRESETS, TWO_STAGES, Recipe
from ternarybert.runtime.evaluate import evaluate as native_evaluate
from ternarybert.student import quantized_layers
from ternarybert.training.batches import Collator
from ternarybert.training.callbacks import TrainingCallback
from ternarybert.training.heads.question_answering import tokenize_questions
from ternarybert.training.losses import loss_attention, loss_hidden, loss_pred_spans
from ternarybert.training.options import TrainingOptions
from ternarybert.training.trainer import Trainer
from tests import tiny

QUICK = TrainingOptions(device="cpu", evaluations=2)
SHORT = {"max_length": 40, "stride": 16, "batch_size": 8, "epochs": 1}
EAGER = Recipe().override(
    {
        "schedule.epochs": "8",
        "schedule.learning_rate": "3e-3",
        "schedule.warmup": "0.1",
        "schedule.gradient_clip": "global",
    }
)
STUDENT = PRESETS["default"].override({"schedule.epochs": "6", "schedule.learning_rate": "1e-3"})


def squad(silent: bool = False) -> TaskData:
    task = dataclasses.replace(SQUAD["squad_v2" if silent else "squad"], **SHORT)
    return TaskData(task, tiny.questions(64, silent=silent), {"dev": tiny.questions(24, start=100, silent=silent)})


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    """Fine-tuned on questions that all have answers, and on some that have none."""
    folder = tmp_path_factory.mktemp("teachers")
    start = tiny.save(folder / "start", make=tiny.answerer, hidden_dropout_prob=0.0)
    made = {}
    for silent in (False, True):
        report = ternarybert.finetune(start, squad(silent), folder / str(silent), EAGER, QUICK)
        made[silent] = str(folder / str(silent)), report
    return made


def test_windows_are_padded_at_their_end(teachers):
    """Whatever the tokenizer likes: answers are counted from the first token."""
    data, tokenizer = squad(), AutoTokenizer.from_pretrained(teachers[False][0], padding_side="left")
    rows = tokenize_questions(data, tokenizer).evals["dev"]
    batch = Collator(tokenizer)(list(rows))
    assert not bool(batch["attention_mask"].all()), "nothing was padded"
    assert bool((batch["input_ids"][:, 0] == tokenizer.cls_token_id).all())


def test_teachers_learn_with_eager_attention_on_a_processor(teachers, tmp_path):
    seen = []

    class Look(TrainingCallback):
        def on_step(self, progress):
            seen.append(progress.model.config._attn_implementation)

    quick = dataclasses.replace(QUICK, max_steps=1, callbacks=(Look(),))
    ternarybert.finetune(teachers[False][0], squad(), tmp_path / "out", EAGER, quick)
    assert seen == ["eager"]
    assert "eager" not in (tmp_path / "out" / "config.json").read_text()


class StopAt(TrainingCallback):
    def __init__(self, step):
        self.step = step

    def on_step(self, progress):
        if progress.step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize("silent", [False, True])
def test_a_teacher_its_student_and_their_scores(teachers, tmp_path, silent):
    teacher, report = teachers[silent]
    assert report.metric == "f1"
    assert report.best.scores["f1"] >= 90.0
    assert report.to_dict()["confusion"] == {"labels": [], "model": None}

    metrics = ternarybert.ternarize(teacher, squad(silent), tmp_path / "out", STUDENT, QUICK)
    best = metrics.best.sets["dev"]
    assert best["f1"] >= 85.0
    assert {"exact", "f1", "agreement"} <= set(best)
    assert ("NoAns_f1" in best) == silent
    assert metrics.metric == "f1"
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == json.loads(json.dumps(metrics.to_dict()))

    judged = ternarybert.evaluate(tmp_path / "out", squad(silent), teacher=teacher)
    assert judged["sets"]["dev"]["f1"] == pytest.approx(best["f1"])
    assert judged["rows"] == 24
    assert judged["confusion"] == {"labels": [], "sets": {"dev": None}}
    itself = ternarybert.evaluate(teacher, squad(silent), teacher=teacher)
    assert itself["scores"]["agreement"] == 100.0
    assert itself["scores"]["f1"] == pytest.approx(report.best.scores["f1"])


def test_the_packed_student_says_without_torch_that_there_is_no_answer(teachers, tmp_path):
    """As often as the evaluation in torch found, question by question."""
    teacher, _ = teachers[True]
    ternarybert.ternarize(teacher, squad(True), tmp_path / "out", STUDENT, QUICK)
    scores = ternarybert.evaluate(tmp_path / "out", squad(True))["sets"]["dev"]
    asked = squad(True).evals["dev"]
    with ternarybert.load(tmp_path / "out") as model:
        answers = model.predict([(question.question, question.context) for question in asked])
    right = {True: [], False: []}  # by whether there is an answer
    for question, answer in zip(asked, answers, strict=True):
        right[bool(question.answers)].append(answer.text == (question.answers[0].text if question.answers else None))
    assert 100 * np.mean(right[False]) == pytest.approx(scores["NoAns_exact"])
    assert 100 * np.mean(right[True]) == pytest.approx(scores["HasAns_exact"])
    assert min(map(np.mean, right.values())) >= 0.75


def test_the_threshold_that_was_found_goes_with_the_model(teachers, tmp_path):
    teacher, report = teachers[True]
    found = report.best.sets["dev"]["best_f1_thresh"]
    said = answering_task(AutoConfig.from_pretrained(teacher).to_dict())
    assert said == dataclasses.replace(SQUAD["squad_v2"], max_length=40, stride=16, null_threshold=found)

    metrics = ternarybert.ternarize(teacher, squad(True), tmp_path / "out", STUDENT, QUICK)
    best = metrics.best.sets["dev"]
    config = packed.read(tmp_path / "out").config
    assert answering_task(config).null_threshold == pytest.approx(best["best_f1_thresh"])
    assert f"{best['best_f1_thresh']:.4f}" in (tmp_path / "out" / "README.md").read_text()
    assert answering_task(AutoConfig.from_pretrained(teachers[False][0]).to_dict()).null_threshold is None


def test_the_threshold_of_the_first_set_holds_for_all(teachers, tmp_path):
    """Also for one that would have the model silent, and for one without questions that have no answer."""
    teacher, _ = teachers[True]
    data = squad(True)
    data.evals["silent"] = [dataclasses.replace(question, answers=()) for question in tiny.questions(20, start=300)]
    data.evals["answered"] = tiny.questions(12, start=400)
    metrics = ternarybert.ternarize(teacher, data, tmp_path / "out", STUDENT.override({"schedule.epochs": "1"}), QUICK)
    told, judged = metrics.best, ternarybert.evaluate(tmp_path / "out", data)
    assert told.sets["silent"]["best_f1"] > told.sets["silent"]["f1"], "nothing to confuse"
    for name, scores in judged["sets"].items():
        assert scores["f1"] == pytest.approx(told.sets[name]["f1"]), name
    assert judged["scores"]["f1"] == pytest.approx(np.mean([scores["f1"] for scores in judged["sets"].values()]))
    assert not any(name.startswith("NoAns") for name in told.scores)


def test_the_packed_folder_is_the_student_that_was_evaluated(teachers, tmp_path):
    teacher, _ = teachers[False]
    kept = {}

    class Keep(TrainingCallback):
        def on_evaluate(self, progress, scores):
            kept["model"] = progress.model

    settings = TrainingOptions(device="cpu", evaluations=1, callbacks=(Keep(),))
    ternarybert.ternarize(teacher, squad(), tmp_path / "out", STUDENT, settings)
    loaded, student = ternarybert.load_torch(tmp_path / "out"), kept["model"].eval()
    assert type(loaded).__name__ == "BertForQuestionAnswering"
    assert len(list(quantized_layers(loaded))) == 13  # no pooler: nothing would use it
    batch = tiny.batch(vocabulary=60)
    with torch.no_grad():
        ours, theirs = loaded(**batch), student(**batch)
    assert torch.equal(ours.start_logits, theirs.start_logits)
    assert torch.equal(ours.end_logits, theirs.end_logits)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "AutoModelForQuestionAnswering.from_pretrained" in card
    assert "| dev | exact |" in card
    assert "SequenceClassification" not in card


def trainer_of(teachers, work, recipe, monkeypatch):
    """The trainer of a run, caught before its first step."""
    caught = {}

    def train(self):
        caught["trainer"] = self
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "train", train)
    with pytest.raises(KeyboardInterrupt):
        ternarybert.ternarize(teachers[False][0], squad(), work / "out", recipe, QUICK)
    return caught["trainer"]


@pytest.mark.parametrize("preset", ["default", "reference"])
def test_the_loss_is_l_trm_plus_l_pred(teachers, tmp_path, monkeypatch, preset):
    trainer = trainer_of(teachers, tmp_path, PRESETS[preset], monkeypatch)
    batch = trainer.batches.collate([trainer.batches.rows[i] for i in range(8)])
    batch.pop("row")
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    wanted = {"output_hidden_states": True, "output_attentions": True}
    with torch.no_grad():
        trainer.model.eval()
        loss = trainer.batch_loss(dict(batch))
        student, teacher = trainer.model(**inputs, **wanted), trainer.teacher.model(**inputs, **wanted)
    ours, theirs = (torch.stack([o.start_logits, o.end_logits], 1) for o in (student, teacher))
    assert ours.shape[0] == 8
    assert trainer.sums["logits"] == pytest.approx(
        float(
            loss_pred_spans(ours, theirs, inputs["attention_mask"])
            if preset == "default"
            else loss_pred_spans(ours, theirs, None, "element")
        ),
        rel=1e-5,
    )
    assert float(loss) == pytest.approx(sum(trainer.sums[name] for name in ("hidden", "attention", "logits")), rel=1e-5)
    if preset == "default":
        mask = inputs["attention_mask"]
        assert trainer.sums["hidden"] == pytest.approx(
            float(loss_hidden(student.hidden_states, teacher.hidden_states, mask)), rel=1e-5
        )
        assert trainer.sums["attention"] == pytest.approx(
            float(loss_attention(student.attentions, teacher.attentions, mask)), rel=1e-5
        )


def test_the_paper_trains_in_two_stages(teachers, tmp_path):
    """L_trm alone in the first half, and the folder says so; whoever asks for one stage gets one."""
    seen = []

    class Watch(TrainingCallback):
        def on_log(self, progress, values):
            seen.append("loss_logits" in values)

    settings = TrainingOptions(device="cpu", evaluations=4, max_steps=8, callbacks=(Watch(),))
    ternarybert.ternarize(teachers[False][0], squad(), tmp_path / "two", PRESETS["paper"], settings)
    assert seen == [False] * 4 + [True] * 4
    used = Recipe.load(tmp_path / "two" / "recipe.yaml")
    assert (used.name, used.stages) == ("paper", TWO_STAGES)
    one = PRESETS["paper"].override({"stages": "[{share: 1.0}]"})
    seen.clear()
    ternarybert.ternarize(teachers[False][0], squad(), tmp_path / "one", one, settings)
    assert seen == [True] * 8
    assert Recipe.load(tmp_path / "one" / "recipe.yaml").stages == ONE_STAGE


@pytest.mark.parametrize("method", ["twn", "lat"])
@pytest.mark.parametrize("stop", [3, 9])
def test_interrupted_and_resumed_equals_uninterrupted(teachers, tmp_path, method, stop):
    """In the first stage, where the head has no gradient and the optimizer no state for it, and in the second."""
    recipe = PRESETS["paper"].override(
        {"weight.method": method, "embedding.method": method, "schedule.learning_rate": "1e-3"}
    )
    settings = TrainingOptions(device="cpu", evaluations=6, max_steps=12)
    whole = ternarybert.ternarize(teachers[True][0], squad(True), tmp_path / "whole", recipe, settings)
    interrupted = dataclasses.replace(settings, callbacks=(StopAt(stop),))
    with pytest.raises(KeyboardInterrupt):
        ternarybert.ternarize(teachers[True][0], squad(True), tmp_path / "part", recipe, interrupted)
    again = dataclasses.replace(settings, resume=True)
    resumed = ternarybert.ternarize(teachers[True][0], squad(True), tmp_path / "part", recipe, again)
    assert whole.evaluations == resumed.evaluations
    files = [(tmp_path / name / "ternarybert.safetensors").read_bytes() for name in ("whole", "part")]
    assert files[0] == files[1]


def test_questions_that_nobody_answered_are_enough_to_distil(teachers, tmp_path):
    bare = squad()
    silent = [dataclasses.replace(question, answers=None) for question in bare.train]
    bare = TaskData(bare.task, silent[:40], {"dev": silent[40:]})
    metrics = ternarybert.ternarize(teachers[False][0], bare, tmp_path / "out", PRESETS["default"], QUICK)
    assert metrics.metric == "agreement"
    assert metrics.teacher.scores == {"dev": {}}
    assert set(ternarybert.evaluate(tmp_path / "out", bare, teacher=teachers[False][0])["scores"]) == {"agreement"}
    with pytest.raises(DataError, match="have no labels or 'answers'"):
        ternarybert.evaluate(tmp_path / "out", bare)
    with pytest.raises(DataError, match="needs training questions with 'answers'"):
        ternarybert.finetune(teachers[False][0], bare, tmp_path / "never", EAGER, QUICK)


def test_windows_without_a_label_serve_distillation_only():
    """In training on labels they are left out; a question that nobody answered is one."""
    data = squad()
    mixed = [dataclasses.replace(q, answers=None) if i % 4 == 0 else q for i, q in enumerate(data.train)]
    data = TaskData(data.task, mixed, {})
    whole, part = (tokenize_questions(data, tiny.tokenizer(), labeled=wanted).train for wanted in (False, True))
    assert min(min(pair) for pair in part["labels"]) == 0
    assert len(whole) - len(part) == sum(pair == [-1, -1] for pair in whole["labels"]) > 0


def test_windows_overlap_and_hold_their_label():
    data = squad()
    features = tokenize_questions(data, tiny.tokenizer())
    assert len(features.train) > len(data.train)
    known = tiny.tokenizer()
    for row in features.train:
        assert row["length"] == len(row["input_ids"]) <= 40
        start, end = row["labels"]
        assert known.decode(row["input_ids"][start : end + 1]) in ("[CLS]", "good", "great", "awful", "dull")
    assert [0, 0] in features.train["labels"]


def test_batches_are_padded_and_have_token_types_where_the_model_does():
    known = tiny.tokenizer()
    assert "token_type_ids" not in known.model_input_names
    for names in (["input_ids", "attention_mask"], ["input_ids", "token_type_ids", "attention_mask"]):
        rows = tokenize_questions(squad(), known, types="token_type_ids" in names).train
        batch = Collator(known)([rows[i] for i in range(5)])
        assert set(batch) == {*names, "labels"}
        assert batch["labels"].shape == (5, 2)
        assert {batch[name].shape for name in names} == {(5, max(rows["length"][:5]))}
    assert batch["token_type_ids"][0].tolist()[:7] == [0, 0, 0, 0, 0, 1, 1]


def test_wrong_heads(teachers, data, tmp_path):
    classifier, teacher = tiny.save(tmp_path / "classifier"), teachers[False][0]
    message = r"no question-answering head \(it is a BertForSequenceClassification\)"
    with pytest.raises(UnsupportedModelError, match=message):
        ternarybert.ternarize(classifier, squad(), tmp_path / "out", STUDENT, QUICK)
    with pytest.raises(UnsupportedModelError, match=message):
        ternarybert.evaluate(classifier, squad())
    with pytest.raises(UnsupportedModelError, match=r"no classification head \(it is a BertForQuestionAnswering"):
        ternarybert.ternarize(teacher, data, tmp_path / "out", STUDENT, QUICK)
    short = TrainingOptions(device="cpu", evaluations=1, max_steps=1)
    ternarybert.ternarize(classifier, data, tmp_path / "packed", STUDENT, short)
    with pytest.raises(UnsupportedModelError, match="no question-answering head"):
        ternarybert.evaluate(tmp_path / "packed", squad())


def test_a_classifier_can_become_a_teacher(tmp_path):
    """Its head is replaced by one with two outputs, whatever number of classes it had."""
    classifier = tiny.save(tmp_path / "classifier", num_labels=3)
    short = TrainingOptions(device="cpu", evaluations=1, max_steps=2)
    ternarybert.finetune(classifier, squad(), tmp_path / "teacher", EAGER, short)
    config = AutoConfig.from_pretrained(tmp_path / "teacher")
    assert (config.num_labels, config.architectures) == (2, ["BertForQuestionAnswering"])


def test_missing_parts(teachers, tmp_path):
    data = squad()
    with pytest.raises(DataError, match="'squad' has no training questions"):
        ternarybert.finetune(teachers[False][0], TaskData(data.task, None, data.evals), tmp_path / "t", EAGER, QUICK)
    with pytest.raises(DataError, match="no training questions"):
        ternarybert.ternarize(teachers[False][0], TaskData(data.task, None, data.evals), tmp_path / "a", None, QUICK)
    with pytest.raises(DataError, match="no questions to evaluate on"):
        ternarybert.ternarize(teachers[False][0], TaskData(data.task, data.train, {}), tmp_path / "b", None, QUICK)
    with pytest.raises(DataError, match="no questions to evaluate on"):
        ternarybert.evaluate(teachers[False][0], TaskData(data.task, data.train, {}))


def test_a_teacher_with_other_windows_is_asked_in_its_own_way(teachers, tmp_path):
    """Answers are compared, not tokens."""
    other = tiny.save(tmp_path / "other", make=tiny.answerer, max_position_embeddings=32)
    assert 0 <= ternarybert.evaluate(teachers[False][0], squad(), teacher=other)["scores"]["agreement"] <= 100
    wide = dataclasses.replace(squad(), task=SQUAD["squad"])  # 384 tokens, of which neither model knows
    assert ternarybert.evaluate(teachers[False][0], wide)["scores"] == pytest.approx(
        ternarybert.evaluate(teachers[False][0], squad())["scores"]
    )


def own(data: TaskData) -> TaskData:
    """The same questions as if they came from the user's own file."""
    task = dataclasses.replace(SQUAD["squad"], **SHORT, name="mine", version=OWN)
    return dataclasses.replace(data, task=task)


def test_the_threshold_of_the_teacher_outlives_questions_that_do_not_tell_it(teachers, tmp_path):
    """Without answers, or with an answer to every question, there is nothing to find another on."""
    teacher, _ = teachers[True]
    known = answering_task(AutoConfig.from_pretrained(teacher).to_dict()).null_threshold
    asked = squad(True)
    for name, answers in (("bare", lambda q: None), ("answered", lambda q: q.answers)):
        parts = [
            [dataclasses.replace(q, answers=answers(q)) for q in questions if name == "bare" or q.answers]
            for questions in (asked.train, asked.evals["dev"])
        ]
        data = own(TaskData(asked.task, parts[0], {"dev": parts[1]}))
        metrics = ternarybert.ternarize(teacher, data, tmp_path / name, STUDENT, QUICK)
        assert metrics.metric == ("agreement" if name == "bare" else "f1")
        assert answering_task(packed.read(tmp_path / name).config).null_threshold == known


def test_a_task_with_silence_judged_by_questions_that_all_have_answers(teachers, tmp_path):
    """The best threshold is not to be found there, and F1 is what counts."""
    data = squad(True)
    data = TaskData(data.task, data.train, {"dev": [q for q in data.evals["dev"] if q.answers]})
    metrics = ternarybert.ternarize(teachers[True][0], data, tmp_path / "out", STUDENT, QUICK)
    assert metrics.metric == "f1"
    assert "best_f1" not in metrics.best.scores


def test_a_model_that_is_never_silent_is_not_silent_when_it_is_scored(teachers, tmp_path):
    """Nor does its student become so where no question tells when."""
    data, (teacher, _) = squad(True), teachers[False]
    ternarybert.ternarize(teacher, squad(), tmp_path / "out", STUDENT, QUICK)
    for judged in (ternarybert.evaluate(teacher, data), native_evaluate(tmp_path / "out", data)):
        assert judged["scores"]["NoAns_exact"] == 0.0
        assert judged["scores"]["HasAns_exact"] > 0.0
    answered = TaskData(data.task, data.train, {"dev": [q for q in data.evals["dev"] if q.answers]})
    ternarybert.ternarize(teacher, answered, tmp_path / "never", STUDENT, QUICK)
    assert packed.read(tmp_path / "never").config["question_answering"]["null_threshold"] is None


def test_a_teacher_cannot_be_judged_by_questions_that_nobody_answered(teachers, tmp_path):
    data = squad()
    bare = [dataclasses.replace(question, answers=None) for question in data.evals["dev"]]
    with pytest.raises(DataError, match="have no labels or 'answers'"):
        ternarybert.finetune(teachers[False][0], TaskData(data.task, data.train, {"dev": bare}), tmp_path / "t")


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_own_questions_are_scored_as_the_model_is_used(teachers, tmp_path, engine):
    """With its silence, even where every question has an answer; SQuAD 1.1 has its own rules."""
    teacher, _ = teachers[True]
    ternarybert.ternarize(teacher, squad(True), tmp_path / "out", STUDENT, QUICK)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    config["question_answering"]["null_threshold"] = -1e9  # never says anything
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    evaluate = ternarybert.evaluate if engine == "torch" else native_evaluate
    assert evaluate(tmp_path / "out", own(squad()))["scores"]["exact"] == 0.0
    assert evaluate(tmp_path / "out", squad())["scores"]["exact"] > 0.0


def test_both_models_are_compared_as_they_are_used(teachers, tmp_path):
    """The same figures in training and afterwards, in both engines: each answers with its own threshold."""
    teacher, report = teachers[True]
    metrics = ternarybert.ternarize(teacher, squad(True), tmp_path / "out", STUDENT, QUICK)
    kept = metrics.best.sets["dev"]
    assert kept["f1"] == pytest.approx(kept["best_f1"])
    assert metrics.teacher.scores["dev"]["f1"] == pytest.approx(report.best.scores["f1"])
    told: list[str] = []
    judged = ternarybert.evaluate(tmp_path / "out", squad(True), teacher=teacher, status=told.append)["sets"]["dev"]
    assert judged == pytest.approx(kept)
    small = tmp_path / "out"
    native = native_evaluate(small, squad(True), teacher=small, status=told.append)["sets"]["dev"]
    ends = [text for text in told if text.endswith(" on dev: 100%")]
    assert ends == [f"evaluating {name} on dev: 100%" for name in ("out", "True", "the model", "the teacher")]
    assert native.pop("agreement") == 100.0
    judged.pop("agreement")
    assert native == pytest.approx(judged, rel=1e-4)
