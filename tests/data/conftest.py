"""GLUE files: the real ones where they are at hand, otherwise a few made rows in the same layout."""

import os
from pathlib import Path

import pytest

HEADERS = {
    "CoLA": None,
    "SST-2": "sentence\tlabel",
    "MRPC": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "STS-B": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
    "QQP": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "MNLI": "index\tpromptID\tpairID\tgenre\tp1\tp2\tp3\tp4\tsentence1\tsentence2\tlabel1\tgold_label",
    "QNLI": "index\tquestion\tsentence\tlabel",
    "RTE": "index\tsentence1\tsentence2\tlabel",
}
ROWS = {
    "CoLA": ["gj04\t1\t\tThe more, the merrier.", 'gj04\t0\t*\tThe "more the merrier.'],
    "SST-2": ["a charming journey \t1", "bleak and desperate \t0"],
    "MRPC": ['1\t11\t12\tHe said so.\t"He said so.', "0\t21\t22\tShe left.\tHe stayed."],
    "STS-B": ["0\tg\tf\t2012\t1\tn\tn\tA plane.\tA jet.\t4.750", "1\tg\tf\t2012\t2\tn\tn\tA cat.\tA dog.\t0.000"],
    "QQP": ["1\t2\t3\tWhy?\tHow come?\t1", "4\t5\t6\tWho?\t\t0"],
    "MNLI": [
        "0\tp\tq\tg\t1\t2\t3\t4\tIt rains.\tIt is wet.\tneutral\tentailment",
        "1\tp\tq\tg\t1\t2\t3\t4\tIt rains.\tIt is cold.\tneutral\tneutral",
        "2\tp\tq\tg\t1\t2\t3\t4\tIt rains.\tIt is dry.\tneutral\tcontradiction",
    ],
    "QNLI": ["0\tWho?\tShe did.\tentailment", "1\tWho?\tIt rained.\tnot_entailment"],
    "RTE": ["0\tIt rains.\tIt is wet.\tentailment", "1\tIt rains.\tIt is dry.\tnot_entailment"],
}


def write_glue(root, name, part, rows=None):
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    lines = [HEADERS[name], *(rows or ROWS[name])]
    (folder / f"{part}.tsv").write_text("".join(f"{line}\n" for line in lines if line is not None), encoding="utf-8")
    return folder


@pytest.fixture
def made_glue(tmp_path):
    for name in HEADERS:
        for part in ("train", "dev_matched", "dev_mismatched") if name == "MNLI" else ("train", "dev"):
            write_glue(tmp_path, name, part)
    return tmp_path


@pytest.fixture
def glue_root(made_glue):
    repository = Path(__file__).parents[2]
    real = Path(os.environ.get("GLUE_DIR", repository.parent / "shared" / "data" / "glue"))
    return real if real.is_dir() else made_glue
