"""What a client over AMQP is told when the node that it was handed on to is lost."""

import pytest

from jackalope.doors.amqp.last_words import LastWords
from jackalope.wire import amqp

OPEN = amqp.encode_method(0, "connection.open-ok")
CLOSE_OK = amqp.encode_method(0, "connection.close-ok")
CHANNEL = amqp.encode_method(1, "channel.open-ok")


def words_after(data: bytes, step: int) -> bytes:
    last = LastWords()
    for at in range(0, len(data), step):
        last.note(data[at : at + step])
    return last.words()


@pytest.mark.parametrize("step", [1, 3, 7, 8, 11, 1_000])
def test_an_open_connection_is_closed_between_two_frames(step: int) -> None:
    said = OPEN + CHANNEL + amqp.HEARTBEAT_FRAME
    reader = amqp.FrameReader(4096)
    ((kind, channel, payload),) = reader.feed(words_after(said, step))
    assert (kind, channel) == (1, 0)
    method = amqp.decode_method(payload)
    assert (method.name, method.args["reply_code"]) == ("connection.close", 320)


@pytest.mark.parametrize("step", [1, 3, 1_000])
def test_nothing_is_put_into_a_frame_nor_behind_a_goodbye(step: int) -> None:
    for lost in range(1, len(CHANNEL)):
        assert words_after(OPEN + CHANNEL[:-lost], step) == b""
    assert words_after(OPEN + CLOSE_OK, step) == b""
    assert words_after(CHANNEL, step) == b""
    assert words_after(b"", step) == b""
