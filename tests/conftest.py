import os
import sys

import pytest
from hypothesis import settings

# Models here are tiny: a second thread gains nothing, and on a busy machine the two wait for each other without end.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples every time, and no time limit: a busy machine is not a bug.
settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")


@pytest.fixture(autouse=True)
def seed():
    """Every test starts from the same random state, whichever ran before. Without torch there is none to set."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
