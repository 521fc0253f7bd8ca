"""What is read from folders: the numbers behind the figures, against direct counts."""

import json

import numpy as np
import pytest

from ternarybert import packed
from ternarybert.errors import DataError, OptionError
from ternarybert.packed import PackedTensor
from ternarybert.report.collect import level_shares, names_of, per_matrix, points_of, read_models

from . import world


def test_shares_of_zeros_are_direct_counts(folder):
    [model] = read_models([folder])
    zeros = per_matrix(model.inspection, "zeros")
    assert len(zeros) == 2 * 6
    for (symbol, layer), name in {
        ("w_q", 0): "bert.encoder.layer.0.attention.self.query.weight",
        ("w_2", 1): "bert.encoder.layer.1.output.dense.weight",
    }.items():
        codes = model.packed.tensors[name].unpack()
        assert zeros[symbol, layer] == pytest.approx((codes == 0).sum() / codes.size)


@pytest.mark.parametrize("bits, count", [("2-2-8", 3), ("3-3-8", 7), ("4-4-8", 15)])
def test_shares_of_levels_are_direct_counts(tmp_path, bits, count):
    [model] = read_models([world.save(tmp_path / "m", {}, bits=bits)])
    shares = level_shares(model.packed)
    assert list(shares) == ["w_e", "w_q", "w_k", "w_v", "w_o", "w_1", "w_2", "w_p"]
    names = [f"bert.encoder.layer.{i}.intermediate.dense.weight" for i in range(2)]
    codes = np.concatenate([model.packed.tensors[name].unpack().reshape(-1) for name in names])
    assert shares["w_1"] == pytest.approx({level: np.mean(codes == level) for level in shares["w_1"]})
    assert len(shares["w_1"]) == count
    assert all(sum(kind.values()) == pytest.approx(1) for kind in shares.values())


def test_levels_that_cannot_be_told_apart_are_left_out(tmp_path):
    [model] = read_models([world.save(tmp_path / "m", {}, bits="8-2-8")])
    assert list(level_shares(model.packed)) == ["w_e"]


def test_errors_need_the_teacher(folder, tmp_path):
    from ternarybert.packed.hf_folder import unpack_to_float
    from tests.cli.shell import plain_folder

    model = packed.read(folder)
    before = {name: 2 * array for name, array in unpack_to_float(model).items()}
    teacher = plain_folder(tmp_path / "teacher", before)
    [compared] = read_models([folder], [teacher])
    assert per_matrix(read_models([folder])[0].inspection, "relative_error") == {}
    assert per_matrix(compared.inspection, "relative_error") == pytest.approx(
        dict.fromkeys(per_matrix(compared.inspection, "zeros"), 0.5)
    )


def test_a_teacher_with_more_layers_has_other_weights(folder, tmp_path):
    from tests.cli.shell import plain_folder
    from tests.packed.models import TINY, bert_shapes

    config = TINY | {"num_hidden_layers": 4}
    shapes = bert_shapes(config)
    teacher = plain_folder(tmp_path / "deep", {n: np.ones(s, np.float32) for n, s in shapes.items()}, config)
    [model] = read_models([folder], [teacher])
    assert model.teacher == teacher
    assert model.before is None


def test_what_the_run_noted(folder):
    [model] = read_models([folder])
    run = model.run
    assert (run.task, run.metric, run.seed) == (world.TASK, "accuracy", 7)
    assert (run.best.step, run.final.step, run.teacher_score) == (20, 30, 83.5)
    assert run.labels == tuple(world.LABELS)
    assert run.losses[0] == {"step": 2.0, "loss": 4.5, "hidden": 3.0, "logits": 1.5}


def test_points_are_compared_within_a_task(tmp_path):
    other = world.metrics() | {"task": "other"}
    folders = [
        world.save(tmp_path / "a", world.metrics()),
        world.save(tmp_path / "b", world.metrics(), bits="3-3-8"),
        world.save(tmp_path / "c", other),
        world.save(tmp_path / "d", {}),
    ]
    models = read_models(folders)
    groups = points_of(models)
    assert [[point.name for point in points] for points in groups.values()] == [
        ["a", "b", "teacher, float32"],
        ["c", "teacher, float32"],
    ]
    a, b, teacher = groups[world.TASK, "accuracy"]
    assert a.score == b.score == 81.25
    assert a.bytes == sum(
        t.codes.nbytes + t.scale.nbytes if isinstance(t, PackedTensor) else t.nbytes
        for t in models[0].packed.tensors.values()
    )
    assert a.bytes < b.bytes < teacher.bytes
    assert teacher.score == 83.5


def test_a_deeper_teacher_is_drawn_at_its_own_size(tmp_path):
    folder = world.save(tmp_path / "a", world.metrics() | {"teacher_bytes": 123_456_789})
    [points] = points_of(read_models([folder])).values()
    assert points[-1].bytes == 123_456_789


def test_names_tell_folders_apart(tmp_path):
    paths = [tmp_path / "x" / "default", tmp_path / "y" / "default"]
    assert names_of(paths[:1]) == ["default"]
    assert names_of(paths) == ["x/default", "y/default"]
    with pytest.raises(OptionError, match="default"):
        names_of([paths[0], tmp_path / "y" / ".." / "x" / "default"])


def test_teachers_are_one_or_one_each(folder, tmp_path):
    others = [world.save(tmp_path / name, {}) for name in "ab"]
    with pytest.raises(OptionError, match=r"--teacher.*\b2\b.*\b3\b"):
        read_models([folder, *others], [folder, folder])
    with pytest.raises(OptionError, match="--teacher"):
        read_models([folder], [others[0]])


@pytest.mark.parametrize(
    "damage",
    [
        {"student": 3},
        {"teacher": None},
        {"evaluations": [{}]},
        {"losses": [{"step": "x"}]},
        {"confusion": {"student": 3}},
        {"metric": "f1"},
        {"losses": [{"step": 1}]},
        {"confusion": {"labels": ["a"], "student": [[1, 2], [3, 4]]}},
    ],
)
def test_metrics_of_another_shape_are_named(folder, damage):
    path = folder / "metrics.json"
    path.write_text(json.dumps(world.metrics() | damage))
    with pytest.raises(DataError, match=r"small: .*metrics\.json"):
        read_models([folder])
