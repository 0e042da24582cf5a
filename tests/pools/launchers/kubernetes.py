"""Kubernetes for tests, in the three ways of scaling."""

from __future__ import annotations

from pathlib import Path

import httpx
import yaml

from jackalope.pools.launcher import Launcher
from jackalope.pools.launchers import make_launcher
from tests.pools.launchers.backends import Backend
from tests.pools.launchers.kubernetes_server import KubernetesServer


class Kubernetes(Backend):
    """Each worker is a deployment."""

    keeps_the_dead = False
    autoscaling: object = "fixed"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server: KubernetesServer | None = None

    @property
    def server(self) -> KubernetesServer:
        assert self._server is not None
        return self._server

    async def open(self) -> None:
        self._server = KubernetesServer(self.folder)
        await self._server.open()

    async def close(self) -> None:
        await self.server.close()

    async def end(self, worker: str) -> None:
        (name,) = (name for name in self.server.objects["deployments"] if worker in name)
        path = f"/apis/apps/v1/namespaces/workers/deployments/{name}"
        async with httpx.AsyncClient(base_url=self.server.url) as client:
            (await client.delete(path)).raise_for_status()

    def launcher(self, owner: str = "one") -> Launcher:
        return self.made(owner)

    def broken_launcher(self) -> Launcher:
        return self.made(url="http://127.0.0.1:9")

    def made(self, owner: str = "one", url: str = "", **settings: object) -> Launcher:
        return make_launcher(self.settings(url, **settings), self.folder / "home", owner)

    def settings(self, url: str = "", **settings: object) -> dict[str, object]:
        return {
            "type": "kubernetes",
            "image": "registry.example/worker:1",
            "command": [str(self.worker)],
            "env": {"DUMP": str(self.dump)},
            "namespace": "workers",
            "autoscaling": self.autoscaling,
            "kubeconfig": str(self.kubeconfig(url or self.server.url)),
            "timeout": "60s",
            **settings,
        }

    def kubeconfig(self, url: str) -> Path:
        path = self.folder / f"kubeconfig-{url.rpartition(':')[2]}"
        config = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "broker"}}],
            "clusters": [{"name": "test", "cluster": {"server": url}}],
            "users": [{"name": "broker", "user": {"token": "secret"}}],
        }
        path.write_text(yaml.safe_dump(config))
        return path


class KubernetesHpa(Kubernetes):
    """Each group is a deployment that a HorizontalPodAutoscaler scales."""

    autoscaling: object = {"type": "hpa", "target_cpu_percent": 50}


class KubernetesKeda(KubernetesHpa):
    """Each group is a deployment that KEDA scales."""

    autoscaling: object = {"type": "keda", "amqp_host": "amqp://broker:5672/", "value": 5}
