"""Threads take turns at Python, and lend theirs while compiled code runs."""

import threading

import pytest

from covey.training.bench.turns import aside, in_turn


def test_the_turn_is_one_threads_until_it_is_lent() -> None:
    said: list[str] = []
    begun, lent = threading.Event(), threading.Event()

    def other() -> None:
        begun.set()
        with in_turn():
            said.append("other")
            lent.set()

    thread = threading.Thread(target=other)
    with in_turn():
        thread.start()
        assert begun.wait(10)
        assert not lent.wait(0.05)
        said.append("first")
        with aside():
            assert lent.wait(10)
    thread.join()
    assert said == ["first", "other"]


def test_who_has_no_turn_lends_none_and_an_error_gives_it_back() -> None:
    with aside():
        pass
    with pytest.raises(ZeroDivisionError), in_turn(), aside():
        raise ZeroDivisionError
    with in_turn():
        pass
