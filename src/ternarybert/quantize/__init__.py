"""The paper's quantizers as pure functions: tensor in, codes and scales out."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    from ternarybert.errors import MissingExtraError

    raise MissingExtraError("quantizers need torch: pip install 'ternarybert[train]'") from error

from ternarybert.quantize.laq import quantize_laq
from ternarybert.quantize.learned import ternarize_learned
from ternarybert.quantize.quantized import Quantized
from ternarybert.quantize.ste import straight_through
from ternarybert.quantize.ternary import ternarize_lat, ternarize_twn
from ternarybert.quantize.uniform import quantize_minmax, quantize_symmetric
from ternarybert.recipe import LAYER, ROW, SAMPLE, TENSOR, TOKEN, Granularity

__all__ = [
    "LAYER",
    "ROW",
    "SAMPLE",
    "TENSOR",
    "TOKEN",
    "Granularity",
    "Quantized",
    "quantize_laq",
    "quantize_minmax",
    "quantize_symmetric",
    "straight_through",
    "ternarize_lat",
    "ternarize_learned",
    "ternarize_twn",
]
