"""TinyBERT's data augmentation: more texts like the user's, on which a student learns from its teacher.

Words are replaced at random by words that fit (the best of a masked-language model) or that have a similar meaning
(nearest neighbors of word vectors). `load_source` loads the sources of words, `augment_table` writes a file,
`augment_dataset` returns training data. torch is imported only for masked-language models.
"""

from ternarybert.augment.masked import MaskedModel
from ternarybert.augment.neighbors import Neighbors, embedding_neighbors, load_embeddings, load_glove
from ternarybert.augment.sources import Source, SourceChain, load_source
from ternarybert.augment.table import AugmentInput, AugmentSummary, augment_table, open_file, open_task
from ternarybert.augment.training_data import augment_dataset
from ternarybert.augment.variants import VariantOptions, augment_rows
from ternarybert.augment.words import STOP_WORDS, read_stop_words

__all__ = [
    "STOP_WORDS",
    "AugmentInput",
    "AugmentSummary",
    "MaskedModel",
    "Neighbors",
    "Source",
    "SourceChain",
    "VariantOptions",
    "augment_dataset",
    "augment_rows",
    "augment_table",
    "embedding_neighbors",
    "load_embeddings",
    "load_glove",
    "load_source",
    "open_file",
    "open_task",
    "read_stop_words",
]
