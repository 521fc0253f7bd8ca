"""Whatever is wrong with a folder, `inspect`, `pack` and `unpack` say so in one line, and never with a traceback."""

import json
import random
import shutil

import numpy as np
import pytest
import safetensors.numpy

from ternarybert.packed import write
from ternarybert.packed.hf_folder import unpack_to_float
from tests.packed.damage import forget_digest
from tests.packed.models import TINY, random_model
from tests.packed.test_fuzz import DAMAGE, cut, edit_json, flip, splice

from .shell import command, plain_folder

SMALL = TINY | {"num_hidden_layers": 1}
INDEX = "model.safetensors.index.json"
ODD_SHAPES = [(), (0,), (1 << 40, 0), (6,), (6, 6), (3, 6), (6, 6, 1), (36,)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A packed folder, a plain one in one file, and one in three."""
    place = tmp_path_factory.mktemp("folders")
    model = random_model(SMALL)
    write(place / "packed", model, extra_files={"tokenizer.json": b"{}", "recipe.yaml": b"name: x"})
    forget_digest(place / "packed")  # or it would find everything first
    floats = unpack_to_float(model)
    plain_folder(place / "plain", floats, SMALL)
    shutil.copytree(place / "plain", place / "pieces")
    (place / "pieces" / "model.safetensors").unlink()
    names, index = sorted(floats), {}
    for number in range(3):
        file = f"model-0000{number + 1}-of-00003.safetensors"
        part = {name: floats[name] for name in names[number::3]}
        safetensors.numpy.save_file(part, place / "pieces" / file)
        index |= dict.fromkeys(part, file)
    (place / "pieces" / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return [place / name for name in ("packed", "plain", "pieces")]


def damage_bytes(rng, folder):
    """As for `read`: flipped bits, lost and added bytes, JSON that says something else."""
    path = rng.choice(sorted(folder.iterdir()))
    ways = [flip, cut, splice, edit_json] if path.suffix == ".json" else DAMAGE["ternarybert.safetensors"]
    data = path.read_bytes()
    path.unlink()  # a new file: the one before may still be mapped
    path.write_bytes(rng.choice(ways)(rng, data) if len(data) > 10 else b"{")


def damage_file(rng, folder):
    """A file that is lost, or another one, or none at all."""
    path, other = rng.sample(sorted(folder.iterdir()), 2)
    path.unlink()
    rng.choice(
        [
            lambda: None,
            path.mkdir,
            lambda: path.symlink_to(path.name),
            lambda: path.symlink_to("/etc/hostname"),
            lambda: shutil.copy(other, path),
        ]
    )()


def damage_tensor(rng, folder):
    """A well-formed file whose tensors are not those of the model: lost, renamed, of another type or shape."""
    path = rng.choice(sorted(folder.glob("*.safetensors")))
    tensors = safetensors.numpy.load_file(path)
    name = rng.choice(sorted(tensors))
    way = rng.randrange(4)
    if way == 0:
        del tensors[name]
    elif way == 1:
        tensors[rng.choice([name + "x", "embeddings.word_embeddings.weight", *tensors])] = tensors.pop(name)
    elif way == 2:
        kind = rng.choice([np.float16, np.float64, np.int64, np.uint8, np.bool_, np.uint16])
        tensors[name] = tensors[name].astype(kind)
    else:
        tensors[name] = np.full(rng.choice(ODD_SHAPES), rng.choice([0, 1, np.nan, np.inf, -1e-45]), np.float32)
    path.unlink()
    safetensors.numpy.save_file(tensors, path)


def damaged(rng, folders, place):
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(rng.choice(folders), place)
    rng.choice([damage_bytes, damage_file, damage_tensor])(rng, place)


def arguments(rng, place, teacher):
    """One of the commands, on the damaged folder or against it."""
    out = place.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    return rng.choice(
        [
            ["inspect", place],
            ["inspect", place, "--json"],
            ["inspect", teacher, "--against", place, "--json"],
            ["pack", place, out],
            ["pack", place, out, "--dense", "--half"],
            ["pack", teacher, place, "--force"],
            ["unpack", place, out],
        ]
    )


def fuzz(folders, place, seeds):
    done = 0
    for seed in seeds:
        rng = random.Random(seed)
        damaged(rng, folders, place)
        line = arguments(rng, place, folders[0])
        try:
            code, out, err = command(*line)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {line}: {type(error).__name__}: {error}") from error
        assert code in (0, 2), (seed, line, err)
        if code == 2:
            assert len(err.splitlines()) == 1, (seed, line, err)
            assert not (place.parent / "out").exists(), (seed, line)
        elif "--json" in line:
            json.loads(out, parse_constant=pytest.fail)
        done += code == 0
    assert 0.05 < done / len(seeds) < 0.7  # the damage is neither harmless nor always obvious


@pytest.mark.filterwarnings("error")
def test_hundreds_of_damaged_folders(tmp_path, folders):
    fuzz(folders, tmp_path / "damaged", range(200))


@pytest.mark.slow
def test_thousands_of_damaged_folders(tmp_path, folders):
    fuzz(folders, tmp_path / "damaged", range(200, 5000))
