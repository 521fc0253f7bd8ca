"""The C library as a C program sees it: `tb_open` and what follows, through ctypes."""

import ctypes
from contextlib import contextmanager
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint32, c_void_p

import numpy as np

from ternarybert.native import CError, library

MEAN, FIRST, DENSE = 2, 1, 3
# enum tb_status
STATUS = {
    "ok": 0, "argument": 1, "model": 2, "input": 3, "memory": 4, "kernel": 5, "numeric": 6, "not packed": 7,
    "version": 8, "file": 9, "config": 10, "container": 11, "tensor": 12, "read": 13,
}  # fmt: skip


class CText(Structure):
    _fields_ = [("text", c_char_p), ("bytes", c_size_t), ("pair", c_char_p), ("pair_bytes", c_size_t)]


class CTokens(Structure):
    _fields_ = [
        ("count", c_int32),
        ("truncated", c_int32),
        *((name, POINTER(c_int32)) for name in ("ids", "types", "words")),
        *((name, POINTER(c_uint32)) for name in ("starts", "ends")),
    ]


class CInfo(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("task", "problem", "labels", "hidden", "pooler", "max_length")),
        ("model", c_void_p),
    ]


class CWord(Structure):
    _fields_ = [("label", c_char_p), ("score", c_double), ("start", c_size_t), ("end", c_size_t)]


class CSpan(Structure):
    _fields_ = [("found", c_int32), ("score", c_double), ("start", c_size_t), ("end", c_size_t)]


class TextModelError(Exception):
    """A status other than 0, by its name, and the message."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = next(name for name, number in STATUS.items() if number == status)


def call(name, *arguments):
    error = CError()
    status = getattr(library(), name)(*arguments, byref(error))
    if status:
        raise TextModelError(status, error.message.decode(errors="replace"))


def as_text(given):
    parts = [given] if isinstance(given, str) else list(given)
    data = [part.encode() for part in parts]
    return CText(data[0], len(data[0]), *((data[1], len(data[1])) if len(data) > 1 else (None, 0)))


def as_texts(given):
    return (CText * len(given))(*map(as_text, given))


class TextModel:
    def __init__(self, handle):
        self.handle, self.info = handle, CInfo()
        call("tb_text_model_info", handle, byref(self.info))
        library().tb_label.restype = c_char_p
        self.labels = [library().tb_label(handle, i).decode() for i in range(self.info.labels)]

    def threshold(self, label):
        return library().tb_threshold(self.handle, label)

    def tokenize(self, text):
        """Ids, types, words, starts and ends, and whether the text was truncated."""
        found = CTokens()
        call("tb_tokenize", self.handle, byref(as_text(text)), byref(found))
        names = ("ids", "types", "words", "starts", "ends")
        columns = {name: getattr(found, name)[: found.count] for name in names}
        columns["truncated"] = bool(found.truncated)
        library().tb_tokens_free(byref(found))
        return columns

    def classify(self, texts):
        logits = np.empty((len(texts), self.info.labels), np.float32)
        scores = np.empty(logits.shape)
        pointers = logits.ctypes.data_as(POINTER(c_float)), scores.ctypes.data_as(POINTER(c_double))
        call("tb_classify", self.handle, as_texts(texts), len(texts), *pointers, c_size_t(logits.size))
        return logits, scores

    def embed(self, texts, output=MEAN, normalize=False):
        width = self.info.pooler if output == DENSE else self.info.hidden
        vectors = np.empty((len(texts), width), np.float32)
        pointer = vectors.ctypes.data_as(POINTER(c_float))
        arguments = as_texts(texts), len(texts), output, int(normalize), pointer, c_size_t(vectors.size)
        call("tb_embed", self.handle, *arguments)
        return vectors

    def tag(self, text, entities=False):
        """Words as (text, label, score)."""
        words, count = POINTER(CWord)(), c_int32()
        call("tb_tag", self.handle, byref(as_text(text)), int(entities), byref(words), byref(count))
        data = text.encode()
        found = [(data[w.start : w.end].decode(), w.label.decode(), w.score) for w in words[: count.value]]
        library().tb_words_free(words)
        return found

    def answer(self, question, context):
        """The answer and its score; None: there is no answer."""
        span = CSpan()
        call("tb_answer", self.handle, byref(as_text((question, context))), byref(span))
        return context.encode()[span.start : span.end].decode() if span.found else None, span.score


def _declare():
    lib = library()
    for name in ("tb_open", "tb_open_memory", "tb_text_model_info", "tb_tokenize", "tb_classify", "tb_embed", "tb_tag"):
        getattr(lib, name).restype = c_int
    lib.tb_close.argtypes = lib.tb_words_free.argtypes = lib.tb_tokens_free.argtypes = [c_void_p]
    lib.tb_label.argtypes = lib.tb_threshold.argtypes = [c_void_p, c_int32]
    lib.tb_threshold.restype = c_double


@contextmanager
def opened(source, *, kernel=None, threads=1, max_length=0):
    """A folder or bundled file by its path, or the bytes of a bundle."""
    _declare()
    handle = c_void_p()
    rest = kernel.encode() if kernel else None, threads, max_length, byref(handle)
    if isinstance(source, bytes):
        call("tb_open_memory", source, c_size_t(len(source)), *rest)
    else:
        call("tb_open", str(source).encode(), *rest)
    try:
        yield TextModel(handle)
    finally:
        library().tb_close(handle)


def refusal(source):
    """The status and message with which a folder or bundle is refused; None if it is not."""
    try:
        with opened(source):
            return None
    except TextModelError as error:
        return error.status, str(error)


__all__ = ["DENSE", "FIRST", "MEAN", "STATUS", "TextModelError", "ctypes", "opened", "refusal"]
