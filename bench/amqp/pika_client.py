"""pika's blocking connection: each publish waits for its confirm."""

from __future__ import annotations

import threading
import time
from typing import Any

import pika

_BODY = b"x" * 100
_PREFETCH = 200


def confirmed(url: str, queue: str, number: int) -> float:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        begin = time.perf_counter()
        for _ in range(number):
            channel.basic_publish("", queue, _BODY, persistent)
        return number / (time.perf_counter() - begin)


def drained(url: str, queue: str, number: int) -> float:
    got = 0

    def on_message(channel: Any, method: Any, *_: Any) -> None:
        nonlocal got
        channel.basic_ack(method.delivery_tag)
        got += 1
        if got == number:
            channel.stop_consuming()

    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=_PREFETCH)
        begin = time.perf_counter()
        channel.basic_consume(queue, on_message)
        channel.start_consuming()
        return number / (time.perf_counter() - begin)


def called(url: str, queue: str, number: int) -> float:
    ready = threading.Event()
    server = threading.Thread(target=_serve, args=[url, queue, number, ready])
    server.start()
    ready.wait()
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        answers: list[bytes] = []
        channel.basic_consume(
            "amq.rabbitmq.reply-to", lambda *args: answers.append(args[3]), auto_ack=True
        )
        call = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
        begin = time.perf_counter()
        for each in range(number):
            channel.basic_publish("", queue, _BODY, call)
            while len(answers) <= each:
                connection.process_data_events(time_limit=None)
        rate = number / (time.perf_counter() - begin)
    server.join()
    return rate


def _serve(url: str, queue: str, number: int, ready: threading.Event) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, auto_delete=True)
        served = 0

        def on_call(channel: Any, _: Any, properties: Any, body: bytes) -> None:
            nonlocal served
            channel.basic_publish("", properties.reply_to, body)
            served += 1
            if served == number:
                channel.stop_consuming()

        channel.basic_consume(queue, on_call, auto_ack=True)
        ready.set()
        channel.start_consuming()
