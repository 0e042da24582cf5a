"""The audit log over REST: filtered by who, what and when, page by page, and as a file."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.doors.http.harness import open_http


def test_acts_are_filtered_paged_and_exported() -> None:
    async def scene() -> None:
        async with open_http() as house:
            client = house.client

            async def asked(**query: Any) -> Any:
                found = await client.get("/api/v1/audit", params=query)
                assert found.status_code == 200, found.text
                return found.json()

            for who, tag in (("ada", "a"), ("bob", "b"), ("ada", "c")):
                headers = {"X-Jackalope-Client": who}
                path = f"/api/v1/limits/{tag}"
                assert (await client.put(path, json={"limit": 3}, headers=headers)).is_success
            await client.put("/api/v1/queues/q", json={}, headers={"X-Jackalope-Client": "ada"})
            acts = (await asked())["acts"]
            assert [act["what"] for act in acts] == ["declare_queue", *["limit_tag"] * 3]
            assert [act["by"] for act in (await asked(by="bob"))["acts"]] == ["bob"]
            both = await asked(by="ada", what="limit")
            assert [act["about"] for act in both["acts"]] == [acts[1]["about"], acts[3]["about"]]
            second = acts[2]["at"]
            assert (await asked(newer_than=second))["acts"] == acts[:3]
            assert (await asked(older_than=second))["acts"] == acts[3:]
            page = await asked(what="limit", limit=2)
            assert page["acts"] == acts[1:3]
            rest = await asked(what="limit", limit=2, cursor=page["cursor"])
            assert (rest["acts"], rest["cursor"]) == (acts[3:], None)
            query = {"format": "jsonl", "by": "ada", "limit": "1"}
            file = await client.get("/api/v1/audit", params=query)
            assert "attachment" in file.headers["content-disposition"]
            lines = [json.loads(line) for line in file.text.splitlines()]
            assert lines == [acts[3], acts[1], acts[0]]

    asyncio.run(scene())
