"""A packed folder with everything that a report can show, and names that try to break out of the page."""

from pathlib import Path

from ternarybert.packed import write
from tests.packed.models import TINY, random_model

LABELS = ["<script>alert(1)</script>", '"quoted" & $x_1$', "plain"]
TASK = "mood</title><img src=x>"


def metrics(losses=True):
    """What `ternarize` writes, with three evaluations of which the second is the best."""

    def evaluation(step, accuracy, agreement):
        scores = {"accuracy": accuracy, "agreement": agreement}
        return {"step": step, "scores": scores, "sets": {"dev": scores}}

    evaluations = [evaluation(10, 60.0, 70.0), evaluation(20, 81.25, 85.0), evaluation(30, 80.0, 88.5)]
    return {
        "task": TASK,
        "bits": "2-2-8",
        "recipe": "default",
        "metric": "accuracy",
        "teacher": {"dev": {"accuracy": 83.5}},
        "student": {"best": evaluations[1], "final": evaluations[2]},
        "evaluations": evaluations,
        **(
            {"losses": [{"step": s, "loss": 9 / s, "hidden": 6 / s, "logits": 3 / s} for s in range(2, 31, 2)]}
            if losses
            else {}
        ),
        "confusion": {
            "labels": LABELS,
            "teacher": [[30, 1, 2], [3, 40, 4], [5, 6, 50]],
            "student": [[28, 3, 2], [3, 39, 5], [7, 4, 50]],
        },
        "seconds": 90.0,
        "seed": 7,
        "versions": {"ternarybert": "0.1.0", "machine": "a <machine>"},
    }


def save(folder: Path, metrics, **changes):
    """A packed folder of random codes, with a model card."""
    model = random_model(TINY, **changes)
    write(
        folder,
        type(model)(model.config, model.tensors, model.bits, model.recipe, metrics),
        extra_files={"README.md": b"# A card\n"},
    )
    return folder
