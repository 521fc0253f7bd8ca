"""TinyBERT's data augmentation: more text like the user's, for a student to learn its teacher's answers on.

Words are replaced at random by words that fit (a masked-language model's best) or that mean something near (nearest
neighbours of word vectors). `load_source` puts the sources together, `augment_table` writes a file, `augment_dataset`
gives training data. torch is imported only where a masked-language model is asked.
"""

from ternarybert.augment.load import load_source
from ternarybert.augment.masked import MaskedModel
from ternarybert.augment.neighbours import Neighbours, embedding_neighbours, load_embeddings, load_glove
from ternarybert.augment.source import Chain, Source
from ternarybert.augment.table import Input, Summary, augment_table, open_file, open_task
from ternarybert.augment.training_data import augment_dataset
from ternarybert.augment.variants import Settings, augment_rows
from ternarybert.augment.words import STOP_WORDS, read_stop_words

__all__ = [
    "STOP_WORDS",
    "Chain",
    "Input",
    "MaskedModel",
    "Neighbours",
    "Settings",
    "Source",
    "Summary",
    "augment_dataset",
    "augment_rows",
    "augment_table",
    "embedding_neighbours",
    "load_embeddings",
    "load_glove",
    "load_source",
    "open_file",
    "open_task",
    "read_stop_words",
]
