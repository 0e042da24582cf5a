"""Profiles: AiiDA's configuration, as far as it names a profile's broker.

Owns how a profile comes to this broker and goes back to the one it had. What it had is kept inside
the new configuration, so that both change together or not at all; and the file as it was is copied
before it is changed. Needs AiiDA.
"""

from __future__ import annotations

import shutil
import time
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiida.manage.configuration import Profile, create_profile, get_config, profile_context

from jackalope.aiida.plugin import JackalopeBroker
from jackalope.errors import ConfigError

#: The entry point, and how it stands in AiiDA's configuration.
BACKEND = "jackalope"

#: Where the configuration of the broker that a profile had before is kept.
BEFORE = "before"

_STORAGE = "core.sqlite_dos"

#: What a profile without a computer is given.
_COMPUTER = "localhost"
_CODE = "bash"
_CALCULATION = "core.arithmetic.add"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a profile reaches the broker; what is empty is as the plugin has it."""

    address: str = ""  # where the broker is; empty for one's own
    namespace: str = ""  # what keeps the profile apart from others
    key: str = ""  # the token
    ca_file: str = ""  # over TLS, who may vouch for the broker
    autostart: bool = True  # start one's own broker on demand

    def to_config(self, name: str, uuid: str) -> dict[str, Any]:
        """Return the configuration of a profile.

        The namespace is written down, because a profile may be given another name.
        """
        return {
            "address": self.address,
            "namespace": self.namespace or f"{name}-{uuid.replace('-', '')[:8]}",
            "key": self.key,
            "ca_file": self.ca_file,
            "autostart": self.autostart,
        }


class Profiles:
    """The profiles of the user that runs this process."""

    def __init__(self) -> None:
        self._config = get_config(create=True)

    def names(self) -> list[str]:
        return list(self._config.profile_names)

    def backend_of(self, name: str) -> str:
        """Return the entry point of a profile's broker; empty if it has none."""
        return str(self._profile(name).process_control_backend or "")

    def broker_of(self, name: str) -> JackalopeBroker:
        """Return the broker of a profile."""
        return JackalopeBroker(self._ours(name))

    def draft(self, name: str, settings: Settings) -> JackalopeBroker:
        """Return the broker that a profile would have. Nothing is changed."""
        profile = deepcopy(self._idle(name))
        profile.set_process_controller(name=BACKEND, config=self._config_of(profile, settings))
        return JackalopeBroker(profile)

    def use(self, name: str, settings: Settings) -> Path | None:
        """Give a profile this broker, and return the copy of the file as it was."""
        profile = self._idle(name)
        return self._change(profile, BACKEND, self._config_of(profile, settings))

    def _config_of(self, profile: Any, settings: Settings) -> dict[str, Any]:
        """Return the configuration to be, with that of the broker that the profile had before."""
        config = settings.to_config(profile.name, profile.uuid)
        old = profile.process_control_config
        if profile.process_control_backend != BACKEND:
            before = {"backend": profile.process_control_backend, "config": old}
            return {**config, BEFORE: before}
        namespace = settings.namespace or old.get("namespace") or config["namespace"]
        return {**config, "namespace": namespace, BEFORE: old.get(BEFORE)}

    def revert(self, name: str) -> tuple[str, Path | None]:
        """Give a profile the broker that it had, and return its name and the copy of the file."""
        self._ours(name)
        profile = self._idle(name)
        before = profile.process_control_config.get(BEFORE)
        if not before:
            raise ConfigError(
                f"profile {name} was made for Jackalope: there is nothing to go back to; "
                "`verdi profile configure-broker` gives it another"
            )
        copy = self._change(profile, before["backend"], before["config"])
        return str(before["backend"] or "no broker"), copy

    def make(self, name: str, email: str, settings: Settings) -> None:
        """Make a profile with SQLite storage and this broker, once the broker has answered."""
        if name in self.names():
            raise ConfigError(f"there is a profile {name}; `jackalope aiida use {name}` changes it")
        control = {"backend": BACKEND, "config": settings.to_config(name, "")}
        JackalopeBroker(Profile(name, {"process_control": control}, validate=False)).reach()
        profile = create_profile(
            self._config,
            name=name,
            email=email,
            storage_backend=_STORAGE,
            storage_config={},
            broker_backend=BACKEND,
            broker_config={},
        )
        profile.set_process_controller(name=BACKEND, config=settings.to_config(name, profile.uuid))
        self._config.update_profile(profile)
        if not self._config.default_profile_name:
            self._config.set_default_profile(name)
        self._config.store()

    def furnish(self, name: str) -> str:
        """See to it that a profile can run something, and return the code that was added.

        A profile without any computer is given this one, and on it a code: the shell, which is
        what AiiDA's examples run. Returns nothing if it has computers.
        """
        from aiida import orm  # noqa: PLC0415  slow, and seldom needed

        with profile_context(name, allow_switch=True):
            if orm.QueryBuilder().append(orm.Computer).count():
                return ""
            computer = orm.Computer(
                label=_COMPUTER,
                hostname=_COMPUTER,
                description="This machine, added by `jackalope aiida`",
                transport_type="core.local",
                scheduler_type="core.direct",
                workdir=str(Path(self._config.dirpath) / "scratch" / name),
            ).store()
            computer.configure(safe_interval=0.0)
            computer.set_minimum_job_poll_interval(0.0)
            computer.set_default_mpiprocs_per_machine(1)
            path = shutil.which(_CODE) or f"/bin/{_CODE}"
            code = orm.InstalledCode(
                label=_CODE,
                computer=computer,
                filepath_executable=path,
                default_calc_job_plugin=_CALCULATION,
            ).store()
            return str(code.full_label)

    def daemons(self) -> list[str]:
        """Return the profiles with this broker whose daemon runs."""
        return [
            name
            for name in self.names()
            if self.backend_of(name) == BACKEND and _has_daemon(self._profile(name))
        ]

    def _profile(self, name: str) -> Any:
        if name not in self.names():
            known = ", ".join(self.names()) or "none"
            raise ConfigError(f"no profile is called {name!r}; there are: {known}")
        return self._config.get_profile(name)

    def _ours(self, name: str) -> Any:
        profile = self._profile(name)
        if profile.process_control_backend != BACKEND:
            raise ConfigError(
                f"profile {name} has the broker {profile.process_control_backend or 'none'}, "
                f"not Jackalope; `jackalope aiida use {name}` changes that"
            )
        return profile

    def _idle(self, name: str) -> Any:
        """Return a profile whose daemon does not run: it would go on with the broker it knows."""
        profile = self._profile(name)
        if _has_daemon(profile):
            raise ConfigError(
                f"the daemon of profile {name} runs; `verdi -p {name} daemon stop` first"
            )
        return profile

    def _change(self, profile: Any, backend: str | None, config: dict[str, Any]) -> Path | None:
        copy = self._keep_copy()
        profile.set_process_controller(name=backend, config=config)
        self._config.update_profile(profile)
        self._config.store()
        return copy

    def _keep_copy(self) -> Path | None:
        file = Path(self._config.filepath)
        if not file.exists():
            return None
        copy = file.with_name(f"{file.name}.{time.strftime('%Y%m%d-%H%M%S')}.bak")
        shutil.copy2(file, copy)
        return copy


def _has_daemon(profile: Any) -> bool:
    from aiida.engine.daemon.client import DaemonClient  # noqa: PLC0415  it loads all of AiiDA

    return bool(DaemonClient(profile).is_daemon_running)
