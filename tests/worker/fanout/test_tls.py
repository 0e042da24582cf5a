"""Where workers reach the broker over TLS, they reach each other over TLS too."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest

from tests.certificates import certificates
from tests.worker.fanout.harness import WAIT_S, House, living_in, submit, until, wait_for_workers

LISTENS = "0A"


def listening_ports(pid: int) -> list[int]:
    """Return where a process listens."""
    links = (str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir())
    inodes = {found[1] for link in links if (found := re.match(r"socket:\[(\d+)\]", link))}
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [
        int(words[1].partition(":")[2], 16)
        for words in lines
        if words[3] == LISTENS and words[9] in inodes
    ]


@pytest.mark.parametrize("is_given", [False, True])
def test_items_are_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_given: bool
) -> None:
    made, meeting = certificates(), tmp_path / "meeting"
    given = ["--fanout-cert", made.cert, "--fanout-key", made.key] if is_given else []
    monkeypatch.setenv("JACKALOPE_CA", made.ca)
    tls = ("--tls-cert", made.cert, "--tls-key", made.key)
    house = House(tmp_path, *tls, scheme="jackalopes")
    with living_in(house, ca_file=made.ca) as app:
        owner = house.start_owner("owner", *given)
        helper = house.start_worker("helper")
        wait_for_workers(app, 2)
        # Each item waits for three: the owner, the helper, and this test.
        fixed = {"folder": str(meeting), "wanted": 3}
        handle = submit(app, "fan_out", "meet", 20, {"fixed": fixed})
        until((meeting / str(helper.pid)).exists, "the helper computes")
        [port] = listening_ports(owner.pid)
        shown = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port)))
        (meeting / "test").touch()
        numbers, pids, by_broker = app.sync(handle.result(WAIT_S))
    assert (numbers, by_broker) == (list(range(20)), "")
    assert set(pids) == {owner.pid, helper.pid}
    if is_given:
        text = Path(made.cert).read_text()
        first = text[: text.index("-----END CERTIFICATE-----")] + "-----END CERTIFICATE-----\n"
        assert shown == ssl.PEM_cert_to_DER_cert(first)
    else:
        assert b"jackalope-fanout" in shown
