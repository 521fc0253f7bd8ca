"""Traps in workflow files that their schema, checked by `make check`, does not catch."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_workflow_can_be_read(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "on", "permissions", "jobs"} <= workflow.keys()  # an unquoted `on` would be True
    for job in workflow["jobs"].values():
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
        actions = [step["uses"] for step in job["steps"] if "uses" in step]
        assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[\w.]+", action) for action in actions)
