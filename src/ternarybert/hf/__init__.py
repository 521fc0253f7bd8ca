"""transformers plug-in: importing this makes `AutoModel….from_pretrained(packed folder)` and `pipeline` work.

transformers finds plug-ins in no other way. Without the import it warns about an unknown quantization type and gives a
model with random weights; `load_torch` cannot be called without it. Documentation: docs/how-to/transformers.md.
"""

from ternarybert.errors import MissingExtraError

try:
    from transformers.quantizers import register_quantization_config, register_quantizer
    from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

    from ternarybert.hf.quantizer import TernaryBertConfig, TernaryBertQuantizer, load_torch
except ImportError as error:
    raise MissingExtraError("torch models need more: pip install 'ternarybert[train]'") from error
from ternarybert.packed.manifest import QUANT_METHOD

if QUANT_METHOD not in AUTO_QUANTIZER_MAPPING:  # registering twice, as after a reload, is an error
    register_quantization_config(QUANT_METHOD)(TernaryBertConfig)
    register_quantizer(QUANT_METHOD)(TernaryBertQuantizer)

__all__ = ["TernaryBertConfig", "TernaryBertQuantizer", "load_torch"]
