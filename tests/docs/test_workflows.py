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


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path):
    """A tag can be moved to other code. The comment names the version, and Dependabot updates both."""
    used = re.findall(r"uses: *(.*)", path.read_text(encoding="utf-8"))
    assert used
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v[\d.]+", action) for action in used)


def test_dependabot_updates_what_developers_install():
    wanted = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text(encoding="utf-8"))["updates"]
    assert {each["package-ecosystem"] for each in wanted} >= {"github-actions", "pip"}
