import pytest

from tests.conftest import ROOT
from tests.js.models import make_models


@pytest.fixture(scope="session")
def models(shared_folder):
    assert (ROOT / "js" / "wasm" / "ternarybert-simd128.wasm").exists(), "run `make wasm` first"
    return shared_folder("js-models", make_models)
