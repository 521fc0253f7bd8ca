"""fork() while threads predict: the child answers, and waits for no thread that it does not have.

`native/tests/fork_test.cc` does the same in C, many times as often.
"""

import os
import signal
import threading
import time

import pytest

import ternarybert

TEXTS = ["good film", "bad", "good bad film film"]
LABELS = {"id2label": {0: "a", 1: "b", 2: "c"}}
PATIENCE = 20  # seconds for a child that needs milliseconds


def exit_code_of(child):
    for _ in range(PATIENCE * 1000):  # not by the clock: all children would be late after the test was suspended
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "it hung"


def answer_in_child(model, expected):
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if model.predict(TEXTS) == expected else 2
        finally:
            os._exit(code)
    return exit_code_of(child)


@pytest.mark.linux_only("os.fork is safe for a process with threads only there")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # the fork of threads is what is tested
@pytest.mark.parametrize("forks", [40, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_process_forked_under_load_answers(folders, monkeypatch, forks):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")  # the tokenizer then uses its threads in a child, too
    stop = threading.Event()
    with ternarybert.load(folders(**LABELS), num_threads=2) as model:
        expected = model.predict(TEXTS)

        def work():
            while not stop.is_set():
                assert model.predict(TEXTS) == expected

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(forks):
                assert answer_in_child(model, expected) == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()
