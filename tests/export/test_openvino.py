"""OpenVINO opens the exported ONNX files as they are, and gives our answers."""

import numpy as np
import pytest

from ternarybert import load
from ternarybert.export import agreement, export_model
from tests import embedders
from tests.runtime.folders import save_student

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]

TEXTS = ["the plot was great and we liked it", "awful", "a good film with a dull plot"]


@pytest.mark.parametrize("kind", ["classifier", "embedder"])
def test_openvino_reads_both_files(tmp_path, kind):
    import openvino

    if kind == "embedder":
        embedders.packed_embedder(tmp_path / "m")
    else:
        save_student(tmp_path / "m", "ForSequenceClassification")
    core = openvino.Core()
    with load(tmp_path / "m", num_threads=1) as model:
        ours = agreement.our_rows(model, TEXTS)
        feed = agreement.padded(model, TEXTS)
        for file in export_model(tmp_path / "m", "onnx", texts=TEXTS):
            compiled = core.compile_model(core.read_model(file.path), "CPU")
            given = {name: array for name, array in feed.items() if any(name in one.names for one in compiled.inputs)}
            theirs = np.array(compiled(given)[len(compiled.outputs) - 1])
            assert np.linalg.norm(theirs - ours) < 0.2 * np.linalg.norm(ours)
