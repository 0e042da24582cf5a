"""Task logs over gRPC: sent by a worker over its stream, read and followed."""

import asyncio

import grpc
import pytest

from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from tests.doors.grpc.harness import PATIENCE_S, open_grpc
from tests.doors.harness import run


def test_lines_are_sent_read_and_followed() -> None:
    async def check() -> None:
        async with open_grpc() as house:
            task = await house.client.submit()
            worker = house.client.worker()
            await worker.join(slots=1)
            (given,) = await worker.take()
            await worker.start(given)

            async def send(*lines: pb.WrittenLine, fence: int = 0) -> pb.Answer:
                held = {"task_id": given.task_id, "fence": fence or given.fence}
                answer: pb.Answer = await worker.ask(logs=pb.WriteLogs(lines=lines, **held))
                return answer

            bad = pb.WrittenLine(text="it broke", level=pb.LOG_LEVEL_ERROR, logger="shop", number=3)
            kept = (await send(pb.WrittenLine(text="hello"), bad)).logs_kept
            assert (kept.kept, kept.dropped) == (2, 0)
            stale = await send(pb.WrittenLine(text="x"), fence=given.fence + 1)
            assert stale.refusal.code == pb.REFUSAL_CODE_STALE_FENCE

            async def read(**wanted: object) -> list[pb.ReadLogsResponse]:
                request = pb.ReadLogsRequest(id=task, **wanted)  # type: ignore[arg-type]
                call = house.client.tasks.ReadLogs(request, timeout=PATIENCE_S)
                return [page async for page in call]

            (page,) = await read()
            assert [line.text for line in page.lines] == ["hello", "it broke"]
            assert (page.lines[1].level, page.lines[1].logger) == (pb.LOG_LEVEL_ERROR, "shop")
            assert (page.attempts[0].lines, page.attempts[0].dropped) == (2, 1)
            assert not page.ended
            (page,) = await read(level=pb.LOG_LEVEL_WARN, limit=1, tail=True)
            assert [line.text for line in page.lines] == ["it broke"]
            (page,) = await read(after=page.lines[0].id)
            assert list(page.lines) == []

            following = asyncio.create_task(read(follow=True))
            await send(pb.WrittenLine(text="more"))
            await worker.finish(given)
            pages = await following
            texts = [line.text for page in pages for line in page.lines]
            assert texts == ["hello", "it broke", "more"]
            assert pages[-1].ended

            for wrong in ({"after": "x"}, {"level": 77}):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await read(**wrong)
                assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(check())
