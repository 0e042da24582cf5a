"""Commands about API keys: make, list and revoke them; make one before there is a broker."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from jackalope.cli.base import Exit, Failure, Options, arg, opt
from jackalope.cli.formatting import brief, clock, now_us
from jackalope.cli.options import Yes, confirm, moment_us

if TYPE_CHECKING:
    from rich.console import RenderableType

    from jackalope.cli.output import Screen
    from jackalope.client.app import Jackalope
    from jackalope.core.api_key import ApiKey, Permission
    from jackalope.wire.views import ApiKeyView

_ROLES = ("read", "submit", "work", "operate", "admin")
_PERMISSIONS = ("submit_tasks", "read_tasks", "cancel_tasks", "work", "admin")

Name = Annotated[str, arg("NAME", "A name for people, such as its owner.")]


@dataclass
class Rights(Options):
    """What a key permits."""

    permission: Annotated[
        list[str] | None,
        opt(
            f"--permission -p [{'|'.join(_PERMISSIONS)}]",
            "What it permits; `admin` includes all. Repeatable.",
            complete=_PERMISSIONS,
        ),
    ] = None
    role: Annotated[
        str,
        opt(
            f"--role [{'|'.join(_ROLES)}]",
            "What its bearer is, in place of permissions.",
            complete=_ROLES,
        ),
    ] = ""
    queue: Annotated[
        list[str] | None,
        opt("--queue -q QUEUE", "Only for this queue. Repeatable.", default="all queues"),
    ] = None
    in_namespace: Annotated[
        str, opt("--in-namespace NAME", "Only for this namespace.", default="all namespaces")
    ] = ""

    def make(self, name: str, expires_us: int = 0) -> "tuple[str, ApiKey]":
        """Make a key, and the token that only its bearer will know."""
        from jackalope.broker.access import hash_of, id_of, new_token
        from jackalope.core.api_key import ApiKey, api_key_problems

        token = new_token()
        key = ApiKey(
            id=id_of(token),
            hash=hash_of(token),
            name=name,
            permissions=self._permissions(),
            queues=tuple(dict.fromkeys(self.queue or ())),
            namespace=self.in_namespace,
            expires_us=expires_us,
        )
        if problems := api_key_problems(key):
            raise Failure("invalid API key", code=Exit.USAGE, details=problems)
        return token, key

    def _permissions(self) -> "tuple[Permission, ...]":
        from jackalope.core.api_key import ROLES, Permission, Role

        for each in self.permission or ():
            if each not in _PERMISSIONS:
                known = ", ".join(_PERMISSIONS)
                raise Failure(f"unknown permission {each!r}; use {known}", code=Exit.USAGE)
        if self.role and self.role not in _ROLES:
            known = ", ".join(_ROLES)
            raise Failure(f"unknown role {self.role!r}; use {known}", code=Exit.USAGE)
        if self.role and self.permission:
            raise Failure("a role or permissions, not both", "--role operate", Exit.USAGE)
        if self.role:
            return ROLES[Role(self.role)]
        if not self.permission:
            raise Failure("the key needs a permission", "--permission work", Exit.USAGE)
        return tuple(Permission(each) for each in dict.fromkeys(self.permission))


async def create(
    client: "Jackalope",
    screen: "Screen",
    name: Name,
    rights: Rights,
    expires: Annotated[
        str,
        opt(
            "--expires WHEN", "When it expires: a time, or a duration such as 90d.", default="never"
        ),
    ] = "",
) -> None:
    """Create an API key, and show its token this once.

    The token is generated here; the broker gets and stores only its hash.

    Examples:
        jackalope keys create ci --permission submit_tasks --permission read_tasks
        jackalope keys create gpu-workers -p work --queue images --expires 90d
        jackalope keys create ada --role operate --in-namespace acme
    """
    token, key = rights.make(name, moment_us(expires) if expires else 0)
    await client.create_api_key(key)
    _show_token(screen, token, {"id": key.id, "name": name})


def _show_token(screen: "Screen", token: str, data: dict[str, Any], also: str = "") -> None:
    from rich.console import Group
    from rich.text import Text

    from jackalope.cli.output import dim

    hint = "keep it: it is not stored, and not shown again. Put it into JACKALOPE_TOKEN to use it"
    drawn = Group(
        Text(token, "bold", no_wrap=True, overflow="ignore"), dim(hint), *([also] * bool(also))
    )
    screen.show({**data, "token": token}, drawn)


async def list_(client: "Jackalope", screen: "Screen") -> None:
    """List API keys with their names and permissions, never their tokens.

    Examples:
        jackalope keys list
        jackalope keys list --format json
    """
    views = await client.api_keys()
    screen.show(views, lambda: _draw(views))


def _draw(views: "list[ApiKeyView]") -> "RenderableType":
    from jackalope.cli.output import dim, table

    if not views:
        return dim("no API keys: every client that reaches this broker has all permissions")
    drawn = table("id", "name", "permits", "queues", "namespace", "expires", "by")
    for view in views:
        over = view.expires_us and view.expires_us <= now_us()
        drawn.add_row(
            view.id,
            brief(view.name, 30),
            view.role or " ".join(view.permissions),
            brief(", ".join(view.queues), 30) or dim("all"),
            view.namespace or dim("all"),
            dim("expired") if over else clock(view.expires_us) if view.expires_us else dim("never"),
            dim("configuration") if view.configured else brief(view.by, 30),
        )
    return drawn


async def revoke(
    client: "Jackalope",
    screen: "Screen",
    key: Annotated[str, arg("ID", "Its id, as `keys list` shows it.")],
    yes: Yes = False,
) -> None:
    """Revoke an API key. Connections that use it are closed at once.

    Examples:
        jackalope keys revoke 3f2a9c0b1d4e
    """
    views = await client.api_keys()
    found = next((view for view in views if view.id == key), None)
    if found is not None and found.configured:
        raise Failure(f"key {key} is configured", "remove it from auth.keys and restart the broker")
    name = f"{key} ({found.name})" if found else key
    confirm(screen, f"revoke API key {name}?", is_sure=yes)
    await client.revoke_api_key(key)
    screen.show({"id": key, "revoked": True}, f"API key {name} is revoked")


def new(screen: "Screen", name: Name, rights: Rights) -> None:
    """Create an API key for the configuration file, without a broker.

    The first key can so exist before the first start. Shows the token this once, and what to put
    into the configuration file.

    Examples:
        jackalope keys new root --permission admin
    """
    import msgspec
    import yaml

    token, key = rights.make(name)
    written = {
        field: value
        for field, value in msgspec.to_builtins(key).items()
        if value and field not in ("expires_us", "created_us", "by")
    }
    entry = yaml.safe_dump({"auth": {"keys": [written]}}, sort_keys=False)
    _show_token(screen, token, {"auth": {"keys": [written]}}, also=f"\n{entry}")


def hash_(screen: "Screen") -> None:
    """Read a token from the standard input, and show the id and the hash of its key.

    Examples:
        jackalope keys hash < token.txt
    """
    from jackalope.broker.access import hash_of, id_of

    token = sys.stdin.readline().strip()
    if not id_of(token):
        raise Failure("not a token", "one looks like jk_<id>_<43 characters>", Exit.USAGE)
    data = {"id": id_of(token), "hash": hash_of(token)}
    screen.show(data, f"id: {data['id']}\nhash: {data['hash']}")
