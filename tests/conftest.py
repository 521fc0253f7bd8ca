import sys

import pytest


@pytest.fixture(autouse=True)
def seed():
    """Every test starts from the same random state, whichever ran before. Without torch there is none to set."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
