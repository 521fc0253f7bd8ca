"""Exported models in transformers.js under Node: found by their names, and with our answers."""

import json
import subprocess

import numpy as np
import pytest

from ternarybert import load
from ternarybert.export import export_model
from tests import embedders
from tests.conftest import ROOT
from tests.runtime.folders import save_student

pytestmark = pytest.mark.integrations

# `make test-integrations` installs it there.
MODULE = ROOT / "build/integrations/node_modules/@huggingface/transformers/dist/transformers.node.mjs"
TEXTS = ["the plot was great and we liked it", "awful", "a good film with a dull plot"]


def answers(folder, kind, dtype):
    """What transformers.js answers to TEXTS."""
    script = ROOT / "tests/export/check_transformers_js.mjs"
    command = ["node", script, MODULE.as_uri(), folder.parent, folder.name, kind, dtype, *TEXTS]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout), np.float32)


@pytest.mark.parametrize("dtype", ["q2", "int8"])
def test_a_classifier_has_our_logits(tmp_path, dtype):
    save_student(tmp_path / "m", "ForSequenceClassification")
    export_model(tmp_path / "m", "onnx", output=tmp_path / "js", texts=TEXTS)
    ours = load(tmp_path / "m").logits(TEXTS)
    theirs = answers(tmp_path / "js", "AutoModelForSequenceClassification", dtype)
    assert np.linalg.norm(theirs - ours) < 0.2 * np.linalg.norm(ours)


@pytest.mark.parametrize("dtype", ["q2", "int8"])
def test_an_embedder_has_our_vectors(tmp_path, dtype):
    embedders.packed_embedder(tmp_path / "m")
    export_model(tmp_path / "m", "onnx", output=tmp_path / "js", texts=TEXTS)
    ours = load(tmp_path / "m").encode(TEXTS, prompt="", normalize=True)
    theirs = answers(tmp_path / "js", "AutoModel", dtype)
    cosines = (theirs * ours).sum(1) / np.linalg.norm(theirs, axis=1)
    assert cosines.min() > 0.98
