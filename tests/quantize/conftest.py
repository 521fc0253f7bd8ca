from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

GOLDEN = np.load(Path(__file__).parent.parent / "golden" / "released.npz")


@pytest.fixture
def golden() -> Callable[[str], torch.Tensor]:
    return lambda name: torch.from_numpy(GOLDEN[name])
