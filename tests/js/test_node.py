"""The npm package in Node: js/test, run on models that Python made, against what Python makes of the texts."""

import os
import shutil
import subprocess

from tests.conftest import ROOT


def test_node(models):
    assert shutil.which("node"), "install Node (Debian: apt-get install nodejs)"
    files = sorted(map(str, (ROOT / "js" / "test").glob("*.test.js")))
    environment = os.environ | {"TERNARYBERT_MODELS": str(models)}
    done = subprocess.run(
        ["node", "--test", *files], capture_output=True, text=True, env=environment, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# skipped 0" in done.stdout and "# pass 0" not in done.stdout, done.stdout
