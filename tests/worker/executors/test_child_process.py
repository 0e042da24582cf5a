"""What a worker uses, as it tells the broker."""

import time

from jackalope.worker.executors.child_process import Processor, rss_bytes


def test_memory_is_what_a_process_could_have() -> None:
    assert 2**20 < rss_bytes() < 2**40


def test_processor_tells_busy_from_idle() -> None:
    processor = Processor()
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    busy = processor.percent()
    assert 0 < busy <= 150
    # Nothing but the question itself is in the next one.
    assert processor.percent() >= 0
