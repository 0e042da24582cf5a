"""The handshake of an AMQP connection: authentication, negotiated limits, virtual host.

Owns the four steps before a connection is open, and the authentication mechanisms. The password is
the token of an API key, or a certificate has the name of one; a broker without keys accepts every
client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jackalope import __version__
from jackalope.broker.access import Principal
from jackalope.core.durations import SECOND
from jackalope.core.limits import NAME_CHARS_MAX
from jackalope.core.refusals import Refusal
from jackalope.wire import amqp
from jackalope.wire.amqp import ConnectionFault, namespace_of
from jackalope.wire.frames import FrameError

if TYPE_CHECKING:
    from jackalope.doors.amqp.connection import Connection

#: Clients ask whose dialect this is, and choose theirs by the answer: it is RabbitMQ's.
_PRODUCT = "RabbitMQ"
_VERSION = "3.10.0"

_CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)

#: The way to prove who one is by a certificate.
_EXTERNAL = "EXTERNAL"

#: Kinds of subject alternative names, besides the common name, that identify the holder.
_NAMES = ("DNS", "email", "URI")


class Greeting:
    """The handshake of a connection, step by step."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._expected = "connection.start-ok"

    def hear(self, head: bytes) -> bool:
        """Answer the protocol header, and return whether it is that of this protocol."""
        if head != amqp.HEADER:
            if len(head) == len(amqp.HEADER) or not amqp.HEADER.startswith(head):
                self._connection.write(amqp.HEADER)
                self._connection.hang_up()
            return False
        self._begin()
        return True

    def _begin(self) -> None:
        self._connection.write(
            amqp.encode_method(
                0,
                "connection.start",
                version_major=0,
                version_minor=9,
                server_properties={
                    "product": _PRODUCT,
                    "version": _VERSION,
                    "platform": f"Jackalope {__version__}",
                    "copyright": "",
                    "information": "Jackalope, a durable task broker",
                    "cluster_name": "jackalope",
                    "capabilities": dict.fromkeys(_CAPABILITIES, True),
                },
                mechanisms=f"PLAIN AMQPLAIN {_EXTERNAL}",
                locales="en_US",
            )
        )

    def take(self, method: amqp.Method) -> bool:
        """Process the next step, and return whether the connection is open."""
        if method.name == "connection.close":
            self._connection.write(amqp.encode_method(0, "connection.close-ok"))
            self._connection.hang_up()
            return False
        if method.name != self._expected:
            text = f"expected {self._expected}, got {method.name}"
            raise ConnectionFault(503, text, method.class_id, method.method_id)
        if method.name == "connection.start-ok":
            self._start(method)
        elif method.name == "connection.tune-ok":
            self._tune(method.args)
        else:
            self._open(method)
            return True
        return False

    def _start(self, method: amqp.Method) -> None:
        connection, args = self._connection, method.args
        connection.properties = args["client_properties"]
        user, admitted = self._admit(args["mechanism"], args["response"])
        if isinstance(admitted, Refusal):
            text = (
                f"Login was refused using authentication mechanism {args['mechanism']}. "
                f"For details see the broker logfile. {admitted.message}"
            )
            raise ConnectionFault(403, text, method.class_id, method.method_id)
        connection.principal, connection.user = admitted, user
        config = connection.door.config
        connection.write(
            amqp.encode_method(
                0,
                "connection.tune",
                channel_max=config.channel_max,
                frame_max=config.frame_bytes_max,
                heartbeat=config.heartbeat_us // SECOND,
            )
        )
        self._expected = "connection.tune-ok"

    def _admit(self, mechanism: str, response: bytes) -> tuple[str, Principal | Refusal]:
        """Authenticate the peer; raises `ConnectionFault`."""
        access, now_us = self._connection.broker.access, self._connection.broker.now_us()
        if mechanism != _EXTERNAL:
            user, token = _credentials(mechanism, response)
            return user, access.admit(token, now_us, str(self._connection.peer[0]))
        names = _names_of(self._connection.certificate)
        admitted = access.admit_certified(names, now_us)
        if isinstance(admitted, Principal) and admitted.key is not None:
            return admitted.key.name, admitted
        return names[0] if names else response.decode(errors="replace"), admitted

    def _tune(self, args: dict[str, Any]) -> None:
        most = self._connection.door.config.frame_bytes_max
        wanted = args["frame_max"] or most
        if not amqp.FRAME_BYTES_MIN <= wanted <= most:
            text = f"negotiated frame_max = {wanted} is not {amqp.FRAME_BYTES_MIN} to {most}"
            raise ConnectionFault(530, text)
        self._connection.agree(wanted, args["heartbeat"])
        self._expected = "connection.open"

    def _open(self, method: amqp.Method) -> None:
        connection, vhost = self._connection, method.args["virtual_host"]
        namespace, key = namespace_of(vhost), connection.principal.key
        if not 0 < len(namespace) <= NAME_CHARS_MAX:
            raise ConnectionFault(
                530, f"vhost {vhost} not found", method.class_id, method.method_id
            )
        if key is not None and key.namespace not in ("", namespace):
            text = f"access to vhost '{vhost}' refused for user '{connection.user}'"
            raise ConnectionFault(530, text, method.class_id, method.method_id)
        connection.vhost, connection.namespace = vhost, namespace
        connection.session = connection.broker.open_session(connection)
        connection.write(amqp.encode_method(0, "connection.open-ok"))


def _credentials(mechanism: str, response: bytes) -> tuple[str, str]:
    """Return the user that the peer claims to be, and the proof."""
    try:
        if mechanism == "PLAIN":
            _, user, password = response.split(b"\0")
            return user.decode(), password.decode()
        if mechanism == "AMQPLAIN":
            table = amqp.decode_table(response)
            return str(table["LOGIN"]), str(table["PASSWORD"])
    except (ValueError, KeyError, FrameError):
        raise ConnectionFault(403, f"response to {mechanism} cannot be read") from None
    raise ConnectionFault(403, f"unknown authentication mechanism {mechanism}")


def _names_of(certificate: dict[str, Any]) -> list[str]:
    """Return the names of a certificate: its common name, then its alternative names."""
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    common = [value for kind, value in subject if kind == "commonName"]
    beside = [value for kind, value in certificate.get("subjectAltName", ()) if kind in _NAMES]
    return [*dict.fromkeys([*common, *beside])]
