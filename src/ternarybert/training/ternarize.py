"""Distillation-aware ternarization: a fine-tuned model goes in, a packed folder comes out."""

from __future__ import annotations

import copy
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from ternarybert import packed
from ternarybert.augment.training_data import Augmentation, augmented, check_augmented, teacher_embeddings
from ternarybert.data.task import TaskData
from ternarybert.errors import TernaryBertError, UnsupportedModelError
from ternarybert.recipe import PRESETS, Recipe
from ternarybert.storage import check_output_folder
from ternarybert.student import expose_scores, make_student
from ternarybert.training.batches import TokenizedData
from ternarybert.training.card import metadata_of_origin
from ternarybert.training.checkpoints import check_output, locked_run, prepare_work
from ternarybert.training.device import check_trackers, make_accelerator
from ternarybert.training.export import model_card, packed_model
from ternarybert.training.heads import head_of
from ternarybert.training.history import BEST, RunEvaluator
from ternarybert.training.models import check_tokenizer, load_tokenizer, load_trained, set_dropout
from ternarybert.training.options import TrainingOptions, run_plan
from ternarybert.training.report import RunReport
from ternarybert.training.teacher import Teacher, fitted
from ternarybert.training.trainer import Trainer

RECIPE_FILE = "recipe.yaml"  # by which a student's folder is recognized


def ternarize(
    teacher: str | Path,
    data: TaskData[Any],
    output: str | Path,
    recipe: Recipe | None = None,
    options: TrainingOptions | None = None,
    *,
    student: str | Path | None = None,
    augment: Augmentation | None = None,
) -> RunReport:
    """Ternarize `teacher` on the task's texts, write the best student as a packed folder, and return the report.

    The student starts as a copy of the teacher, or from `student`, a shallower model fine-tuned on the same task
    (with `distill.layer_map: uniform`). Labels are only used to score. With `augment` every training row comes with
    variants, and training takes one epoch unless the recipe gives another number.
    """
    recipe, options = recipe or PRESETS["default"], options or TrainingOptions()
    with locked_run(Path(output)):
        return _ternarize(teacher, data, Path(output), recipe, options, student, augment)


def _ternarize(
    teacher: str | Path,
    data: TaskData[Any],
    output: Path,
    recipe: Recipe,
    options: TrainingOptions,
    student: str | Path | None,
    augment: Augmentation | None,
) -> RunReport:
    if augment is not None:
        check_augmented(data.task)
        recipe = recipe.override({"schedule.stretch": 1.0})  # with variants of every row one pass is enough
    check_trackers(options.report_to)
    check_output(output, options, RECIPE_FILE)
    check_output_folder(output, replaceable=options.force and packed.is_packed(output))  # now rather than after hours
    head = head_of(data.task)
    recipe = recipe.for_task(two_stages=head.two_stages)
    network, tokenizer = load_trained(teacher, head), load_tokenizer(teacher)
    check_tokenizer(tokenizer, network)
    data = fitted(data, network)
    start = copy.deepcopy(network) if student is None else load_trained(student, head_of(data.task))
    expose_scores(network)
    model = make_student(start, recipe)
    check_depths(model, network, recipe)
    set_dropout(model, recipe.schedule.dropout)
    augmentation = None
    if augment is not None:  # takes long, so only after all checks
        own = partial(teacher_embeddings, str(teacher), network, tokenizer)
        data, augmentation = augmented(data, augment, own, options.seed, options.device)

    plan = run_plan(teacher, data, recipe, options)
    plan |= {"student": None if student is None else str(student), "augmentation": augmentation}
    work = prepare_work(output, options, plan)
    trainer = student_trainer(Teacher.of(network, data, tokenizer), model, recipe, options, work, save=True)
    trainer.train()
    report = trainer.report(
        bits=str(recipe.bits), recipe=recipe.name, precision=options.precision, augmentation=augmentation
    )
    if trainer.accelerator.is_main_process:
        files = trainer.head.files(trainer.tokenized, network)
        files["README.md"] = _card(output, work, report, teacher)
        _write(output, work, trainer.tokenized, recipe, report, options, files)
    return report


def student_trainer(
    teacher: Teacher,
    model: PreTrainedModel,
    recipe: Recipe,
    options: TrainingOptions,
    work: Path,
    *,
    save: bool,
    optimizer: str = "bertadam",
) -> Trainer:
    """A trainer that distills the teacher into `model`; with `save` the best student is packed in the work folder."""
    accelerator = make_accelerator(options, work, recipe)
    accelerator.wait_for_everyone()  # the first process has prepared the work folder, which the evaluator reads
    teacher.model.to(accelerator.device)
    budget = options.time_budget
    if budget is None:
        teacher.evaluate()
    else:
        teacher.evaluate(budget.now)
        # Our own students take up to three times as long to evaluate, in integers; their first evaluation corrects it.
        budget.reserve = min(3 * teacher.seconds, budget.seconds / 4)
    evaluator = RunEvaluator(
        teacher.head,
        teacher.tokenized,
        work,
        keep_last=options.keep_last,
        teacher_predictions=teacher.predictions(),
        save=partial(_save_packed, recipe=recipe) if save else None,
        is_intact=_is_readable if save else lambda _: True,
    )
    return Trainer(
        model,
        teacher.head,
        teacher.tokenized,
        recipe,
        options,
        evaluator,
        teacher=teacher,
        optimizer=optimizer,
        accelerator=accelerator,
    )


def check_depths(student: PreTrainedModel, teacher: PreTrainedModel, recipe: Recipe) -> None:
    """A student with fewer layers needs a layer map, and the same width, vocabulary and labels."""
    ours, theirs = student.config, teacher.config
    for what in ("num_labels", "vocab_size", "max_position_embeddings"):
        if getattr(ours, what) != getattr(theirs, what):
            raise UnsupportedModelError(
                f"student and teacher differ in {what}: {getattr(ours, what)} against {getattr(theirs, what)}"
            )
    if ours.num_labels > 1 and ours.id2label != theirs.id2label:
        raise UnsupportedModelError(
            f"student and teacher differ in their labels: {_names(ours)} against {_names(theirs)}, in this order"
        )
    if ours.hidden_size != theirs.hidden_size or ours.num_attention_heads != theirs.num_attention_heads:
        raise UnsupportedModelError(
            f"student and teacher differ in width: {ours.hidden_size} with {ours.num_attention_heads} heads "
            f"against {theirs.hidden_size} with {theirs.num_attention_heads}"
        )
    if ours.num_hidden_layers != theirs.num_hidden_layers and recipe.distill.layer_map == "same":
        raise UnsupportedModelError(
            f"the student has {ours.num_hidden_layers} layers, the teacher {theirs.num_hidden_layers}; "
            "set distill.layer_map=uniform"
        )
    if theirs.num_hidden_layers % ours.num_hidden_layers:
        raise UnsupportedModelError(
            f"the teacher's {theirs.num_hidden_layers} layers do not spread evenly over "
            f"the student's {ours.num_hidden_layers}"
        )


def _names(config: Any) -> str:
    return ", ".join(str(name) for _, name in sorted(config.id2label.items()))


def _save_packed(model: PreTrainedModel, folder: Path, recipe: Recipe) -> None:
    packed.write(folder, packed_model(model, recipe), force=True)


def _is_readable(folder: Path) -> bool:
    """Whether a packed student can be read; every byte is checked."""
    try:
        packed.read(folder)
    except TernaryBertError:
        return False
    return True


def _card(output: Path, work: Path, report: RunReport, teacher: str | Path) -> bytes:
    model = packed.read(work / BEST).in_memory()
    return model_card(output.absolute().name, model, report, metadata_of_origin(teacher)).encode()


def _write(
    output: Path,
    work: Path,
    tokenized: TokenizedData,
    recipe: Recipe,
    report: RunReport,
    options: TrainingOptions,
    more_files: dict[str, bytes],
) -> None:
    best, tokenizer = packed.read(work / BEST).in_memory(), tokenized.tokenizer  # its folder is deleted below
    model = packed.PackedModel(best.config, best.tensors, best.bits, best.recipe, report.to_dict())
    tokenizer.model_max_length = tokenized.max_length  # texts are truncated in use as in training
    tokenizer.save_pretrained(work / "tokenizer")
    files: dict[str, Any] = {path.name: path for path in (work / "tokenizer").iterdir() if path.is_file()}
    files[RECIPE_FILE] = recipe.to_yaml().encode()
    packed.write(output, model, extra_files=files | more_files, force=options.force)
    if not options.keep_checkpoints:
        del best, model  # their tensors are views of a mapped file, which Windows does not remove while it is mapped
        shutil.rmtree(work)
