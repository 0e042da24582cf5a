"""Where callbacks may go, as far as the text of a URL and an address show it."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from jackalope.core.shapes.callback import (
    AllowedTargets,
    Callback,
    CallbackOn,
    Trigger,
    address_problem,
    callback_problems,
    trigger_problems,
    url_problem,
)

NOTHING = AllowedTargets()

FORBIDDEN = {
    "0.0.0.0": "unspecified",  # noqa: S104
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "10.0.0.1": "private",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.0.1": "private",
    "100.64.0.1": "reserved",  # behind a carrier's NAT
    "169.254.169.254": "link-local",  # metadata of clouds
    "192.0.2.1": "private",  # documentation
    "198.18.0.1": "private",  # benchmarks
    "224.0.0.1": "multicast",
    "239.255.255.250": "multicast",
    "240.0.0.1": "private",
    "255.255.255.255": "private",
    "::": "unspecified",
    "::1": "loopback",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:169.254.169.254": "link-local",
    "::127.0.0.1": "reserved",
    "64:ff9b::7f00:1": "reserved",  # NAT64 of a loopback address
    "64:ff9b:1::a": "address",  # NAT64 of a network of one's own
    "fe80::1": "link-local",
    "fc00::1": "private",
    "fd00:ec2::254": "private",  # metadata of a cloud
    "fec0::1": "private",
    "ff02::1": "multicast",
    "2001:db8::1": "private",
    "2002:7f00:1::": "127.0.0.1",  # 6to4
    "2002:a00:1::": "10.0.0.1",
    "100::1": "private",
}


@pytest.mark.parametrize("text", FORBIDDEN)
def test_an_address_that_is_not_public(text: str) -> None:
    problem = address_problem(ip_address(text), NOTHING)
    assert FORBIDDEN[text] in problem
    assert "callbacks.allow" in problem
    host = f"[{text}]" if ":" in text else text
    assert url_problem(f"http://{host}/", NOTHING)
    allowed = AllowedTargets((ip_network(text),))
    if "ffff" not in text:
        assert not address_problem(ip_address(text), allowed)


@pytest.mark.parametrize("text", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111"])
def test_a_public_address(text: str) -> None:
    assert not address_problem(ip_address(text), NOTHING)


def test_a_mapped_address_is_that_of_version_4() -> None:
    allowed = AllowedTargets((ip_network("10.0.0.0/8"),))
    assert not address_problem(ip_address("::ffff:10.0.0.1"), allowed)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org",
        "http://example.org:8080/a/b?c=d&e=%20",
        "https://EXAMPLE.org./",
        "http://1.1.1.1/",
        "http://[2606:4700:4700::1111]:80/",
        "https://xn--bcher-kva.example/",
    ],
)
def test_a_url_that_can_be_called(url: str) -> None:
    assert url_problem(url, NOTHING) == ""


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "//example.org/",
        "ftp://example.org/",
        "file:///etc/passwd",
        "gopher://example.org/",
        "http:///path",
        "http://",
        "http://user@example.org/",
        "http://user:password@example.org/",
        "http://:password@example.org/",
        "http://example.org/#part",
        "http://example.org:0/",
        "http://example.org:65536/",
        "http://example.org:http/",
        "http://exa mple.org/",
        "http://example.org/\r\nHost: other",
        "http://example.org/\t",
        "http://bücher.example/",
        "http://localhost/",
        "http://a.localhost:80/",
        "http://LOCALHOST./",
        "http://127.1/",
        "http://0177.0.0.1/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://[::1%25lo]/",
        "http://[fe80::1%eth0]/",
        "http://[::1/",
        "http://127.0.0.1\\@example.org/",
        "http://example.org\\@127.0.0.1/",
    ],
)
def test_a_url_that_cannot_be_called(url: str) -> None:
    assert url_problem(url, NOTHING)


def test_a_host_that_is_allowed() -> None:
    allowed = AllowedTargets(hosts=("localhost", "127.0.0.1"))
    assert not url_problem("http://LocalHost.:80/", allowed)
    assert not url_problem("http://127.0.0.1/", allowed)
    assert url_problem("http://127.0.0.2/", allowed)


def test_all_problems_are_listed() -> None:
    problems = callback_problems(
        (Callback("ftp://a"), Callback("https://a.example/", (CallbackOn.BATCH,) * 2)),
        NOTHING,
        is_of_queue=False,
    )
    assert [problem.partition(":")[0] for problem in problems] == [
        "callbacks[0].url",
        "callbacks[1].on",
        "callbacks[1].on",
    ]
    own = Trigger("x" * 257, (), "n" * 257, "k" * 257, 256)
    found = [problem.partition(":")[0] for problem in trigger_problems((own,), 255)]
    fields = ("queue", "name", "key", "priority", "on")
    assert found == [f"triggers[0].{field}" for field in fields]
