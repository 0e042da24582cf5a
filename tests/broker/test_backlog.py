"""What peers do not read, in sum."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from jackalope.broker.backlog import COUNTED_BYTES_MIN, Backlog

MOST = 10 * COUNTED_BYTES_MIN


class Reader:
    """A connection with so much unread."""

    def __init__(self, backlog: Backlog) -> None:
        self.backlog = backlog
        self.size = 0
        self.is_open = True

    def unread_bytes(self) -> int:
        return self.size

    def abort(self) -> None:
        self.is_open, self.size = False, 0


Steps = st.lists(st.tuples(st.integers(0, 7), st.integers(0, MOST), st.booleans()), max_size=60)


@given(Steps)
def test_the_sum_stays_below_its_bound_and_the_slowest_goes_first(
    steps: list[tuple[int, int, bool]],
) -> None:
    async def test() -> None:
        backlog = Backlog(MOST)
        readers = [Reader(backlog) for _ in range(8)]
        for number, size, is_told in steps:
            reader = readers[number]
            if not reader.is_open:
                continue
            reader.size = size
            if not is_told:
                continue  # It reads, or is written to a little, and nobody hears of that.
            before = {each for each in readers if each.is_open}
            largest = max(each.size for each in before)
            backlog.note(reader, size)
            gone = [each for each in before if not each.is_open]
            assert backlog.unread_bytes <= MOST
            assert not gone or largest >= COUNTED_BYTES_MIN
        for reader in readers:
            backlog.forget(reader)
        assert backlog.unread_bytes == 0

    asyncio.run(test())


def test_the_reader_with_the_most_unread_is_cut_off() -> None:
    async def test() -> None:
        backlog = Backlog(MOST)
        small, large, late = (Reader(backlog) for _ in range(3))
        for reader, size in ((small, 3), (large, 6), (late, 2)):
            reader.size = size * COUNTED_BYTES_MIN
            backlog.note(reader, reader.size)
        assert (small.is_open, large.is_open, late.is_open) == (True, False, True)

    asyncio.run(test())


def test_who_has_read_meanwhile_is_not_counted() -> None:
    async def test() -> None:
        backlog = Backlog(MOST)
        quick, slow = Reader(backlog), Reader(backlog)
        quick.size = 8 * COUNTED_BYTES_MIN
        backlog.note(quick, quick.size)
        quick.size, slow.size = 0, 8 * COUNTED_BYTES_MIN
        backlog.note(slow, slow.size)
        assert quick.is_open
        assert slow.is_open

    asyncio.run(test())
