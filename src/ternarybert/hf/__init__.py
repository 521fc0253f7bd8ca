"""transformers plug-in: importing this makes `AutoModel….from_pretrained(packed folder)` and `pipeline` work.

transformers has no other way to find plug-ins. Without the import it finds no weights file and raises an OSError (for
folders of format version 1 it only warns, and returns a model with random weights); `load_torch` registers the format
itself. See docs/how-to/transformers.md.
"""

from ternarybert.errors import MissingExtraError

try:
    from transformers.quantizers import register_quantization_config, register_quantizer
    from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

    from ternarybert.hf.quantizer import TernaryBertConfig, TernaryBertQuantizer, load_torch
except ImportError as error:
    raise MissingExtraError("torch models need the train extra: pip install 'ternarybert[train]'") from error
from ternarybert.packed.manifest import QUANT_METHOD

if QUANT_METHOD not in AUTO_QUANTIZER_MAPPING:  # registering twice, as after a reload, is an error
    register_quantization_config(QUANT_METHOD)(TernaryBertConfig)
    register_quantizer(QUANT_METHOD)(TernaryBertQuantizer)

__all__ = ["TernaryBertConfig", "TernaryBertQuantizer", "load_torch"]
