"""What tasks print and log reaches the broker: real workers, every executor."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from jackalope.core.commands import Action
from jackalope.core.ids import TaskId
from jackalope.core.shapes.task_log import LogPage
from jackalope.core.task import Options
from jackalope.wire.messages import Query
from tests.worker.executors.stage import pids
from tests.worker.harness import AT_ONCE, House, in_house
from tests.worker.logs import tasks

APPLICATION = f"{tasks.__name__}:app"
MIB = 1024 * 1024


async def logs(house: House, task: TaskId, **about: Any) -> LogPage:
    asked = {"id": task, "limit": 10_000, **about}
    return msgspec.convert(await house._ask(Query(0, "logs", asked)), LogPage)


async def texts(house: House, task: TaskId, **about: Any) -> list[str]:
    return [line.text for line in (await logs(house, task, **about)).lines]


SPOKEN = [
    ("stdout", "info", "", "to stdout"),
    ("stderr", "warn", "", "stderr"),
    ("stdout", "info", "", "to both"),
    ("stdout", "info", "", "bytes"),
    ("log", "warn", "shop.orders", "warned of this"),
    ("log", "debug", "shop.orders", "two"),
    ("log", "debug", "shop.orders", "lines"),
    ("log", "error", "shop.orders", "it failed"),
    ("log", "error", "shop.orders", "ValueError: broken"),
    ("log", "error", "task", "said by the context reason='a b'"),
]


@pytest.mark.parametrize("name", ["speak_async", "speak_in_thread", "speak_in_process"])
def test_every_way_to_print_and_log_is_kept(name: str, tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(application=APPLICATION, log="debug json", sets_up_log=True)
        task = await house.submit(name)
        assert await house.value(task) == "spoken"
        page = await logs(house, task)
        found: list[Any] = [
            (line.stream, line.level, line.logger, line.text) for line in page.lines
        ]
        for line in SPOKEN:
            assert found.count(line) == 1, (line, found)
        assert not [text for _, _, _, text in found if "OWN HANDLER" in text], found
        assert sum("said by structlog" in text for _, _, _, text in found) == 1, found
        assert [line.number for line in page.lines] == list(range(1, len(found) + 1))
        assert (page.ended, page.attempts[0].dropped, page.attempts[0].lines) == (
            True,
            0,
            len(found),
        )
        if name == "speak_in_process":
            for line in (
                ("stdout", "info", "", "from a child"),
                ("stderr", "warn", "", "its error"),
                ("stdout", "info", "", "from below"),
                ("stdout", "info", "", "from C"),
            ):
                assert found.count(line) == 1, (line, found)

    in_house(story, tmp_path / "data")


@pytest.mark.parametrize("name", ["count_async", "count_in_thread", "count_with_help"])
def test_tasks_that_run_at_once_do_not_mix(name: str, tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(application=APPLICATION)
        calls = [(name, (f"task {number}", 100)) for number in range(8)]
        ids = await house.submit_many(calls)
        for number, task in enumerate(ids):
            await house.end(task)
            assert await texts(house, task) == [f"task {number} {line}" for line in range(100)]

    in_house(story, tmp_path / "data")


@pytest.mark.parametrize("name", ["silent", "silent_in_process"])
def test_silent_task_has_no_log(name: str, tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(application=APPLICATION)
        task = await house.submit(name)
        await house.end(task)
        page = await logs(house, task)
        assert (page.lines, page.attempts) == ([], [])

    in_house(story, tmp_path / "data")


@pytest.mark.parametrize("name", ["print_much", "print_much_in_process"])
def test_of_too_much_the_newest_is_kept_and_the_rest_is_counted(name: str, tmp_path: Path) -> None:
    megabytes = 64

    async def story(house: House) -> None:
        house.worker(application=APPLICATION, task_logs="broker")
        task = await house.submit(name, megabytes)
        assert await house.value(task) == "printed"
        page = await logs(house, task, is_tail=True)
        (kept,) = page.attempts
        assert page.lines[-1].text == "the end"
        assert page.lines[-1].number == megabytes * 1024 + 1
        assert kept.lines + kept.dropped == megabytes * 1024 + 1
        assert kept.dropped > 0
        assert kept.size <= house.broker.logs.settings.attempt_bytes_max
        assert house.broker.logs.stored_bytes == kept.size

    in_house(story, tmp_path / "data")


def test_line_without_end_is_cut(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(application=APPLICATION, task_logs="broker")
        task = await house.submit("print_one_line", 100 * MIB)
        await house.end(task)
        (text,) = await texts(house, task)
        assert len(text) < 20_000
        assert text.startswith("yyyy")
        assert "more]" in text

    in_house(story, tmp_path / "data")


def test_lines_of_a_worker_that_was_killed_are_there_and_attempts_are_separate(
    tmp_path: Path,
) -> None:
    async def story(house: House) -> None:
        first = house.worker(application=APPLICATION, lease_s=1.0, grace_s=0.1)
        release, begun = tmp_path / "release", tmp_path / "begun"
        options = Options(retry=AT_ONCE)
        task = await house.submit("print_and_wait", str(release), str(begun), options=options)
        await house.until(lambda: pids(begun))

        async def has_lines() -> bool:
            return bool((await logs(house, task)).lines)

        await house.until(has_lines)
        first.kill()
        release.touch()
        house.worker(application=APPLICATION)
        assert await house.value(task) == "done"
        page = await logs(house, task)
        assert [(line.attempt, line.text) for line in page.lines] == [
            (1, "before"),
            (2, "before"),
            (2, "after"),
        ]
        assert await texts(house, task, attempt=1) == ["before"]

    in_house(story, tmp_path / "data")


def test_lines_survive_a_restart_of_the_broker_and_go_on(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(application=APPLICATION)
        release, begun = tmp_path / "release", tmp_path / "begun"
        task = await house.submit("print_and_wait", str(release), str(begun))
        await house.until(lambda: pids(begun))
        await house.shut()
        release.touch()  # What it prints while there is no broker is kept by the worker.
        await house.open()
        await house.watch(task)
        assert await house.value(task) == "done"
        page = await logs(house, task)
        assert [(line.number, line.text) for line in page.lines] == [(1, "before"), (2, "after")]

    in_house(story, tmp_path / "data")


def test_last_words_of_a_process_that_dies_are_kept(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(application=APPLICATION)
        task = await house.submit("crash")
        await house.until(lambda: texts(house, task))
        assert (await texts(house, task))[0] == "last words"

    in_house(story, tmp_path / "data")


def test_every_attempt_has_its_own_lines(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(application=APPLICATION)
        path = tmp_path / "attempts"
        task = await house.submit("fail_twice", str(path), options=Options(retry=AT_ONCE))
        assert await house.value(task) == "well"
        page = await logs(house, task)
        assert [(line.attempt, line.text) for line in page.lines] == [
            (1, "attempt 1"),
            (2, "attempt 2"),
            (3, "attempt 3"),
        ]
        assert await texts(house, task, text="ATTEMPT 2") == ["attempt 2"]
        after = page.lines[0].id
        assert await texts(house, task, after_line=after) == ["attempt 2", "attempt 3"]
        assert await texts(house, task, before_line=page.lines[1].id) == ["attempt 1"]
        assert await texts(house, task, is_tail=True, limit=1) == ["attempt 3"]

    in_house(story, tmp_path / "data")


def test_text_is_kept_as_a_terminal_shows_it(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(application=APPLICATION)
        bar = await house.submit("progress_bar")
        await house.end(bar)
        assert await texts(house, bar) == ["done 100 %", "no end of line"]
        odd = await house.submit("odd_text")
        await house.end(odd)
        assert await texts(house, odd) == [
            "\x1b[31mred\x1b[0m <script>alert(1)</script> \\udcff ünïcödé"
        ]

    in_house(story, tmp_path / "data")


def test_output_of_plain_threads_is_the_workers(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(application=APPLICATION)
        task = await house.submit("print_in_own_thread")
        await house.end(task)
        assert await texts(house, task) == ["from the task"]

    in_house(story, tmp_path / "data")


def test_worker_that_keeps_its_output_to_itself_sends_nothing(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(application=APPLICATION, task_logs="output")
        for name in ("speak_async", "speak_in_process"):
            task = await house.submit(name)
            assert await house.value(task) == "spoken"
            assert await texts(house, task) == []

    in_house(story, tmp_path / "data")


def test_question_waits_for_the_next_line_and_for_the_end(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(application=APPLICATION)
        release, begun = tmp_path / "release", tmp_path / "begun"
        task = await house.submit("print_and_wait", str(release), str(begun))
        first = await logs(house, task, wait_us=20_000_000)
        assert [line.text for line in first.lines] == ["before"]
        release.touch()
        after = first.lines[-1].id
        second = await logs(house, task, wait_us=20_000_000, after_line=after)
        assert [line.text for line in second.lines] == ["after"]
        await house.end(task)
        after = second.lines[-1].id
        last = await logs(house, task, wait_us=20_000_000, after_line=after)
        assert (last.lines, last.ended) == ([], True)

    in_house(story, tmp_path / "data")


def test_lines_go_with_their_task(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.worker(application=APPLICATION)
        task = await house.submit("speak_async")
        await house.end(task)
        assert await texts(house, task)
        await house.act(Action.PURGE, task)
        await house.broker.logs.forget_tasks()
        assert house.broker.logs.stored_bytes == 0

    in_house(story, tmp_path / "data")
