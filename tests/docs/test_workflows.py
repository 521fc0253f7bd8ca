"""The files for continuous integration say what we think they say. Their grammar is checked by `make check`."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_workflow_can_be_read(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "on", "permissions", "jobs"} <= workflow.keys()  # an unquoted `on` would be True
    for job in workflow["jobs"].values():
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
        actions = [step["uses"] for step in job["steps"] if "uses" in step]
        assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[\w.]+", action) for action in actions)


def test_wheels_for_the_usual_platforms():
    workflow = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text(encoding="utf-8"))
    built = {entry["platform"] for entry in workflow["jobs"]["wheel"]["strategy"]["matrix"]["include"]}
    assert built == {"linux-x86_64", "linux-aarch64", "macos-arm64", "macos-x86_64", "windows-amd64"}
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[tool.cibuildwheel]")[2]
    assert 'build = "cp311-*"' in settings  # one: the wheel is py3-none, a second build would be the same
    assert '"ternarybert doctor"' in settings  # every wheel is tested where it was built
