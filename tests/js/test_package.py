"""What others get from npm: files that bundlers for browsers take."""

import json
import re

from tests.conftest import ROOT

JS = ROOT / "js"
PACKAGE = json.loads((JS / "package.json").read_text())
SOURCES = sorted(JS.glob("*.js"))


def test_modules_of_node_are_hidden_from_bundlers():
    """`npm run bundle`, in `make js-test`, bundles the package; this tells without a bundler."""
    assert {path.name for path in SOURCES} <= set(PACKAGE["files"])
    for path in SOURCES:
        assert not re.search(r"""(\bfrom|\bimport|\bimport\(|\brequire\()\s*["']node:""", path.read_text()), path.name
