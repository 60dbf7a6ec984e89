"""Taps on what threads and ranks tell each other: only what is a matter of time may be answered with "not yet"."""

import queue
import threading
from concurrent.futures import Future

import pytest

pytest.importorskip("torch")

import torch.distributed as dist

from forkpoint.rehearse.inside.places import CodePlaces
from forkpoint.rehearse.inside.taps import Taps
from forkpoint.rehearse.inside.waiting import WaitingTaps
from forkpoint.rehearse.listening import Listener

pytestmark = pytest.mark.torch

PROGRAM = """
def is_set(event): return event.is_set()
def set_it(event): event.set()
def done(future): return future.done()
def result(future): return future.result()
def get_nowait(items): return items.get_nowait()
def make_lock(): return threading.Lock()
def take(lock): return lock.acquire(blocking=False)
def send(store, key): store.set(key, "1")
def check(store, key): return store.check([key])
"""


class NeverReady(Listener):
    def __init__(self):
        self.asked = []

    def polled(self, site, what):
        self.asked.append(what)
        return False


@pytest.fixture
def listener():
    return NeverReady()


@pytest.fixture
def user(tmp_path, monkeypatch, listener):
    """Functions of a user's program, with taps on what they call."""
    places = CodePlaces((str(tmp_path),))
    taps = Taps(listener, places, on_join=lambda: None, on_step=lambda _: None)

    def swap(owner, name, make):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # as it was, when the test is over
        taps.swap(owner, name, make)

    WaitingTaps(listener, places).open(swap)
    names = {"threading": threading}
    exec(compile(PROGRAM, str(tmp_path / "prog.py"), "exec"), names)
    return names


def in_a_thread(work, *args):
    thread = threading.Thread(target=work, args=args)
    thread.start()
    thread.join()


def test_an_event_that_another_thread_set_may_not_be_seen_yet(user):
    event = threading.Event()
    in_a_thread(user["set_it"], event)

    assert not user["is_set"](event)


def test_an_event_that_the_asking_thread_set_is_seen(user, listener):
    event = threading.Event()
    user["set_it"](event)

    assert user["is_set"](event)
    assert listener.asked == []


def test_a_future_that_was_waited_for_is_done(user):
    future, waited_for = Future(), Future()
    future.set_result(1)
    waited_for.set_result(1)
    user["result"](waited_for)

    assert not user["done"](future)
    assert user["done"](waited_for)


def test_what_is_not_there_stays_so_and_nobody_is_asked(user, listener):
    assert not user["is_set"](threading.Event())
    assert not user["done"](Future())
    with pytest.raises(queue.Empty):
        user["get_nowait"](queue.Queue())
    assert listener.asked == []


def test_an_item_that_is_on_its_way_is_kept_for_later(user):
    items = queue.Queue()
    in_a_thread(items.put, "item")

    with pytest.raises(queue.Empty):
        user["get_nowait"](items)
    assert items.get() == "item"


def test_a_lock_is_taken_by_others_only_if_others_use_it(user):
    own, shared = user["make_lock"](), user["make_lock"]()
    in_a_thread(shared.__enter__)
    shared.__exit__()

    assert user["take"](own)
    assert not user["take"](shared)
    assert not shared.locked()


def test_a_lock_stays_what_it_is_to_those_who_ask(user):
    assert isinstance(user["make_lock"](), threading.Lock)
    assert isinstance(threading.Lock(), threading.Lock)
    assert threading.Lock | None
    condition = threading.Condition(user["make_lock"]())
    with condition:
        condition.notify_all()


def test_a_key_that_this_rank_has_sent_is_there(user):
    store = dist.HashStore()
    user["send"](store, "mine")
    store.set("theirs", "1")

    assert user["check"](store, "mine")
    assert not user["check"](store, "theirs")


def test_what_a_library_asks_is_answered_as_it_is(user, listener):
    event = threading.Event()
    in_a_thread(event.set)

    assert event.is_set()
    assert listener.asked == []
