"""The launchers of a broker's process: made of its configuration, and brought to work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jackalope.broker.config.schema import Config
from jackalope.broker.service import Broker
from jackalope.cli.commands.serve import bad_config
from jackalope.core.shapes.pool import NO_LAUNCHER
from jackalope.storage.data_folder import folder_id
from jackalope.transport.address import Address

if TYPE_CHECKING:
    from jackalope.pools.launcher import Launcher
    from jackalope.pools.reconciler import PoolService

#: Where launchers keep their own notes, below the data folder.
_FOLDER = "launchers"


def make_launchers(config: Config) -> dict[str, Launcher]:
    """Make every launcher that is configured. Nothing is started yet.

    Each owns what it starts: another launcher of this broker does not see it, nor does another
    broker.

    Raises:
        Failure: some cannot be used; it lists them.
    """
    if not config.launchers:
        return {}
    from jackalope.pools.launchers import make_launcher

    home, made, problems = Path(config.data.folder).resolve(), {}, []
    # Two brokers may have folders of the same name, each in its own container.
    home.mkdir(parents=True, exist_ok=True)
    broker_id = folder_id(home)
    for name, settings in config.launchers.items():
        if name == NO_LAUNCHER or settings.get("type") == "none":
            problems.append(
                f"launchers.{name}: workers that are started by hand need no launcher; "
                f"leave the pool's at {NO_LAUNCHER}"
            )
            continue
        try:
            made[name] = make_launcher(settings, home / _FOLDER / name, f"{broker_id}/{name}")
        except ValueError as error:
            problems.append(f"launchers.{name}: {error}")
    if problems:
        raise bad_config(problems)
    return made


async def start_pools(
    broker: Broker, config: Config, launchers: dict[str, Launcher]
) -> PoolService | None:
    """Register the launchers with the broker, if there are any."""
    if not launchers:
        return None
    from jackalope.pools.reconciler import PoolService

    service = PoolService(broker, launchers, config.launch.every_us / 1e6)
    await service.start()
    return service


def begin_pools(service: PoolService | None, config: Config, port: int, amqp_port: int) -> None:
    """Let workers be started, now that there are doors for them; AMQP's has no port if it is shut.

    What is configured comes first: workers on another machine reach the broker otherwise.
    """
    if service is not None:
        from jackalope.pools.launcher import Reach

        address = config.launch.address or str(_address(config, port))
        amqp = config.launch.amqp or (amqp_port and _amqp_address(config, amqp_port))
        service.begin(Reach(address, amqp or "", config.amqp.message_bytes_max))


def _address(config: Config, port: int) -> Address:
    """Return where workers on the same machine reach the native door."""
    host = _here(config.native.host)
    return Address(host, port, tls=bool(config.tls.cert) and config.native.tls)


def _amqp_address(config: Config, port: int) -> str:
    """Return where workers on the same machine reach the AMQP door."""
    host = _here(config.amqp.host)
    scheme = "amqps" if config.tls.cert and config.amqp.tls else "amqp"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _here(host: str) -> str:
    """Return where a client on the same machine reaches what listens at a host."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  looked for, not used
