"""What the examples of the pages take as given: one function for each page, named after it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import flask
import msgspec
from fastapi import FastAPI
from litestar import Litestar
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

import jackalope
from jackalope import (
    Jackalope,
    Limit,
    NodeError,
    Rejected,
    Replace,
    Stream,
    Throttle,
    Throttled,
    current,
)
from jackalope.contrib import outbox

Given = dict[str, Any]


def app() -> Jackalope:
    return Jackalope("jackalope://nowhere.invalid")


def callbacks() -> Given:
    return {"do_resize": lambda path: path}


def resources() -> Given:
    return {"app": app()}


def limit_by_key() -> Given:
    return {
        "app": app(),
        "Limit": Limit,
        "Throttled": Throttled,
        "post": lambda text: SimpleNamespace(status=200, headers={}),
    }


def children() -> Given:
    return {}


def durable_steps() -> Given:
    class Approval(msgspec.Struct):
        by: str

    return {
        "Approval": Approval,
        "charge": lambda number: "paid",
        "ship": lambda number, by: None,
        "handle": SimpleNamespace(signal=_taken),
    }


async def _taken(event: str, data: object) -> None:
    assert event == "approved"


def flows() -> Given:
    used = app()
    tasks = {}
    for name in ("book_flight", "book_hotel", "pay", "cancel_flight", "cancel_hotel"):
        tasks[name] = used.task(name=name)(lambda trip_id: trip_id)
    for name in ("ask", "crawl"):
        tasks[name] = used.task(name=name)(len)
    return {
        **tasks,
        "index": used.task(name="index")(sum),
        "NodeError": NodeError,
        "people": ["Ada", "Bob"],
        "trip_id": 7,
        "start": "a",
        "url": "b",
        "other": "c",
        "do_fetch": lambda url: "cat.png",
        "do_resize": lambda path, width: f"{width}-{path}",
        "do_publish": lambda paths, title: "https://example.org/gallery",
        "other_app": used,
    }


def large_payloads() -> Given:
    Path("film.mp4").write_bytes(b"film" * 1000)
    return {"app": app(), "Stream": Stream, "Path": Path, "convert": lambda film: Path("film.mp4")}


def middleware() -> Given:
    scope = SimpleNamespace(set_tag=lambda name, value: None)
    sentry: Any = ModuleType("sentry_sdk")
    sentry.isolation_scope = lambda: nullcontext(scope)
    sentry.capture_exception = print
    sys.modules["sentry_sdk"] = sentry
    return {"engine": create_engine("sqlite://"), "fake": None}


def messages() -> Given:
    return {}


def django() -> Given:
    return {}


def monitoring() -> Given:
    return {"Jackalope": Jackalope}


def outbox_page() -> Given:
    used = app()

    @used.task
    def send_receipt(order: int) -> None: ...

    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.begin() as connection:
        outbox.create_table(connection)

    class Shop(Session):
        def add(self, instance: object, *_: Any, **__: Any) -> None:
            """Take the order, which is no model here."""

    order = SimpleNamespace(id=7)
    return {"Session": Shop, "engine": engine, "order": order, "send_receipt": send_receipt}


def requests() -> Given:
    return {"do_report": lambda region, year: {"sum": 1.0}}


def schedules() -> Given:
    return {}


def security() -> Given:
    return {"Jackalope": Jackalope}


def tenants() -> Given:
    async def submit(order: int) -> None:
        told = "no more submits in this second"
        raise Rejected("quota_exceeded", told, 100_000, ("submits_per_second", 5, 5))

    return {"jackalope": jackalope, "task": SimpleNamespace(submit=submit), "order": 7}


def test_your_tasks() -> Given:
    used = app()

    @used.task
    def resize(path: str, width: int) -> str:
        return f"{path.removesuffix('.png')}-{width}.png"

    @used.task(retries=1)
    def fetch(url: str) -> str:
        print("fetching")
        if current().attempt == 1:
            raise ConnectionError(url)
        return "text"

    @used.task
    def charge(order: int) -> str:
        return "paid"

    @used.task
    def report() -> str:
        return "done"

    shop: Any = ModuleType("shop.tasks")
    shop.app, shop.fetch, shop.charge, shop.report, shop.send_later = (
        used,
        fetch,
        charge,
        report,
        charge,
    )
    sys.modules["shop"], sys.modules["shop.tasks"] = ModuleType("shop"), shop
    return {"resize": resize}


def task_logs() -> Given:
    return {"app": app()}


def uniqueness() -> Given:
    return {"Throttle": Throttle, "Replace": Replace}


def web_frameworks() -> Given:
    used = app()

    @used.task
    async def train(what: str) -> str:
        return what

    return {
        "app": used,
        "FastAPI": FastAPI,
        "Litestar": Litestar,
        "handlers": [],
        "web": flask.Flask("web"),
        "train": train,
    }


def README() -> Given:  # noqa: N802  the page's name
    return {"do_resize": lambda path, width: f"{width}-{path}"}


def fan_out() -> Given:
    return {}
