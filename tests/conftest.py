import pytest
import torch


@pytest.fixture(autouse=True)
def seed():
    """Every test starts from the same random state, whichever ran before."""
    torch.manual_seed(0)
