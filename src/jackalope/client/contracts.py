"""What tasks take and return, as the workers of a broker say."""

from __future__ import annotations

from jackalope.client.admin import Administration
from jackalope.wire.views import ContractView


class Contracts(Administration):
    """The tasks that workers have declared."""

    async def contracts(self, name: str = "", *, queue: str = "") -> list[ContractView]:
        """Return what tasks take, by queue and name; of one task, or of one queue."""
        about = {"name": name, "queue": queue}
        return await self.query("contracts", about, list[ContractView])

    async def delete_contract(self, name: str, *, queue: str) -> None:
        """Delete what a task in a queue takes. Workers that join later declare it again."""
        about = {"name": name, "queue": queue}
        await self.manage("delete_contract", about, can_repeat=False)
