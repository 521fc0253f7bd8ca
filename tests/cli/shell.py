"""The command line without a process of its own, and a folder to use it on."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

import pytest
import safetensors.numpy

from ternarybert.cli import main
from tests.packed.models import TINY


def command(*arguments):
    """Run `ternarybert ARGUMENTS`; give the exit code, what it printed and what it complained about."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["ternarybert", *map(str, arguments)]),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        main()
    return end.value.code or 0, out.getvalue(), err.getvalue()


def plain_folder(folder, tensors, config=TINY):
    """A Hugging Face folder that knows nothing of packing."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    return folder
