"""What a child wrote is there for its parent, also after the child was killed."""

import os
import signal
from collections.abc import Callable

from forkpoint.evidence.shared_buffer import EmptyingSide, FillingSide, SharedBuffer


def begin(work: Callable[[FillingSide], None]) -> tuple[int, EmptyingSide]:
    shared = SharedBuffer()
    child = os.fork()
    if child == 0:
        try:
            work(shared.filling_side())
        except BrokenPipeError:
            os._exit(7)
        finally:
            os._exit(0)
    return child, shared.emptying_side()


def taken_from(side: EmptyingSide) -> bytes:
    pieces, more = list[bytes](), True
    while more:
        piece, more = side.take()
        pieces.append(piece)
    return b"".join(pieces)


def test_what_a_child_wrote_before_it_was_killed_arrives():
    def die(to: FillingSide) -> None:
        to.write(b"whole")
        os.kill(os.getpid(), signal.SIGKILL)

    child, side = begin(die)

    assert taken_from(side) == b"whole"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    side.close()


def test_more_than_the_buffer_holds_arrives_in_order():
    data = b"".join(number.to_bytes(4, "little") for number in range(300_000))

    def write(to: FillingSide) -> None:
        to.write(data[:7])
        to.write(data[7:])
        to.hand_over()
        to.write(b"end")

    child, side = begin(write)

    assert taken_from(side) == data + b"end"
    os.waitpid(child, 0)
    side.close()


def test_a_parent_that_closes_ends_a_child_with_more_to_say():
    def write_on(to: FillingSide) -> None:
        while True:
            to.write(b"x" * 1000)

    child, side = begin(write_on)

    side.take()
    side.close()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
