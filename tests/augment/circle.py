"""A source without a model: words on a circle, whose nearest are those beside them."""

import numpy as np

from ternarybert.augment import Neighbors


def circle(words=40, count=4):
    angles = np.arange(words) * 2 * np.pi / words
    names = [f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(words)]
    return Neighbors(names, np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32), "a circle", count)
