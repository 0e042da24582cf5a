"""The Compose file: a broker, two workers, Prometheus and Grafana that find each other."""

import json
from pathlib import Path
from typing import Any

import yaml

from jackalope.broker.config.exposure import exposure_problems
from jackalope.broker.config.loader import load
from jackalope.transport.address import parse_address
from tests.deploy.test_image import variables

DOCKER = Path(__file__).resolve().parents[2] / "deploy" / "docker"
PARTS: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = PARTS["services"]


def test_broker_starts_with_what_it_is_given() -> None:
    broker = SERVICES["broker"]
    settings = {k: v for k, v in variables().items() if k.startswith("JACKALOPE_")}
    config = load(None, settings | broker["environment"], {}).config
    assert exposure_problems(config, has_keys=False) == []
    assert broker["volumes"] == [f"data:{config.data.folder}"]
    assert "data" in PARTS["volumes"]


def test_ports_are_open_to_this_machine_alone() -> None:
    published = [port for each in SERVICES.values() for port in each.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_two_workers_reach_the_broker_and_have_tasks() -> None:
    worker = SERVICES["worker"]
    assert worker["deploy"]["replicas"] == 2
    verb, app, flag, address = worker["command"]
    assert (verb, flag, parse_address(address).host) == ("worker", "--broker", "broker")
    module, _, name = app.partition(":")
    text = (DOCKER / "app" / f"{module}.py").read_text()
    assert f"{name} = Jackalope(" in text
    compile(text, module, "exec")
    assert worker["depends_on"]["broker"]["condition"] == "service_healthy"
    assert worker["healthcheck"] == {"disable": True}


def test_every_file_that_is_mounted_is_there() -> None:
    for service in SERVICES.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (DOCKER / source).exists(), source
            else:
                assert source in PARTS["volumes"]


def test_prometheus_scrapes_the_broker_and_grafana_shows_it() -> None:
    scraped = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())
    (job,) = scraped["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["broker:7421"]}]
    mounted = {each.split(":")[1] for each in SERVICES["prometheus"]["volumes"]}
    assert {f"/etc/prometheus/{name}" for name in scraped["rule_files"]} <= mounted
    (source,) = yaml.safe_load((DOCKER / "grafana/datasource.yaml").read_text())["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    (provider,) = yaml.safe_load((DOCKER / "grafana/dashboards.yaml").read_text())["providers"]
    places = [each.split(":") for each in SERVICES["grafana"]["volumes"]]
    (shown,) = [each for each in places if each[1].startswith(provider["options"]["path"])]
    assert json.loads((DOCKER / shown[0]).read_text())["title"] == "Jackalope"
