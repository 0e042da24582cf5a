"""A worker as one is written for osrdyne, with pika and nothing of this project.

It knows what its environment tells it. It answers with its key and the body, or does as the body
says: `env`, `error`, `die`, `once`, `unsure`, `reject`, `requeue`, `parts`, `wait <file>`. With
`--url` it has credentials of its own, and its reports name its key alone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties

KEY = os.environ["WORKER_KEY"]
ID = os.environ["WORKER_ID"]
OWN_URL = "".join(word.removeprefix("--url=") for word in sys.argv if word.startswith("--url="))


def main() -> None:
    """Work until the connection ends."""
    connection = pika.BlockingConnection(
        pika.URLParameters(OWN_URL or os.environ["WORKER_AMQP_URI"])
    )
    channel = connection.channel()
    report(channel, "started")
    report(channel, "ready")
    channel.basic_consume(os.environ["WORKER_REQUESTS_QUEUE"], on_request)
    channel.start_consuming()


def report(channel: BlockingChannel, event: str) -> None:
    """Say what the worker does."""
    headers = {"x-event": event} if OWN_URL else {"x-event": event, "x-worker-id": ID}
    exchange = os.environ["WORKER_ACTIVITY_EXCHANGE"]
    channel.basic_publish(exchange, KEY, b"", BasicProperties(headers=headers))


def on_request(
    channel: BlockingChannel, method: Basic.Deliver, asked: BasicProperties, body: bytes
) -> None:
    """Answer a request, then acknowledge it."""
    report(channel, "request-received")
    word, _, rest = body.decode().partition(" ")
    tag = method.delivery_tag
    if word == "die" or (word == "once" and not method.redelivered):
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "unsure" and not method.redelivered:
        answer(channel, asked, b"ok", b"of a worker that died before it acknowledged")
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "reject" or (word == "requeue" and not method.redelivered):
        channel.basic_reject(tag, requeue=word == "requeue")
        return
    if word == "parts":
        for part in range(3):
            answer(channel, asked, b"ok", str(part).encode(), is_last=False)
    if word == "wait":
        Path(f"{rest}.begun").touch()
        while not Path(rest).exists():
            time.sleep(0.02)
    if word == "env":
        names = [name for name in os.environ if name.startswith("WORKER_")]
        body = json.dumps({name: os.environ[name] for name in names}).encode()
    elif word != "error":
        body = f"{KEY}|{body.decode()}".encode()
    answer(channel, asked, b"core_error" if word == "error" else b"ok", body)
    channel.basic_ack(tag)


def answer(
    channel: BlockingChannel,
    asked: BasicProperties,
    status: bytes,
    body: bytes,
    *,
    is_last: bool = True,
) -> None:
    """Send an answer to whoever asked."""
    headers: dict[str, object] = {"x-status": status}
    if not is_last:
        headers["x-non-terminating-response"] = True
    if asked.reply_to:
        told = BasicProperties(correlation_id=asked.correlation_id, headers=headers)
        channel.basic_publish("", asked.reply_to, body, told)


if __name__ == "__main__":
    main()
