"""A program that takes orders, each with a task in the outbox, until it is killed."""

import sqlite3
import sys
from contextlib import closing
from typing import Any

from jackalope import Jackalope
from jackalope.contrib import outbox

app = Jackalope("jackalope://nowhere.invalid")


@app.task(queue="mail", retries=0)
def send(number: int) -> int:
    return number


def connect(url: str) -> Any:
    """Open a plain connection of the database's own library."""
    if url.startswith("sqlite"):
        return closing(sqlite3.connect(url.partition(":///")[2]))
    import psycopg  # noqa: PLC0415  only where it is asked for

    return closing(psycopg.connect(url))


def main(url: str, count: int) -> None:
    mark = "?" if url.startswith("sqlite") else "%s"
    with connect(url) as connection:
        for number in range(count):
            connection.execute(f"INSERT INTO orders VALUES ({mark})", (number,))
            outbox.submit(connection, send.options(tags=[str(number)]), number)
            connection.commit()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
