"""A fleet by hand: one Redis, and the API and workers as their commands start them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx2

from leadhand.local.processes import free_port
from leadhand.local.redis_server import RedisServer
from tests.acceptance.project import Project
from tests.redis_users import of_broker
from tests.waiting import wait_until

TOKEN = "token of the test"


class Fleet(Project):
    """A folder whose commands talk to an API that somebody else runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "working folder")
        self.redis = RedisServer(folder / "redis of the fleet")
        self.redis.start()
        self.url = f"http://127.0.0.1:{free_port()}"
        self.server_env = {
            "LEADHAND_REDIS_URL": self.redis.url,
            "LEADHAND_BROKER_URL": self.broker_url,
            "LEADHAND_SECRET": "secret of the test",
            "LEADHAND_API_TOKEN": TOKEN,
            "LEADHAND_API_URL": self.url,
            "LEADHAND_SPILL": str(folder / "spill"),
        }
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        self.client = httpx2.Client(base_url=self.url, headers=bearer, trust_env=False, timeout=10)
        self.worker: subprocess.Popen[str] | None = None
        self.env |= {"LEADHAND_URL": self.url, "LEADHAND_TOKEN": TOKEN}

    @property
    def broker_url(self) -> str:
        return of_broker(self.redis.url)

    def serve(self) -> None:
        """Start the API and one worker, and wait until both are there."""
        self.server("api", "--bind", self.url.removeprefix("http://"))
        self.worker = self.server("worker", "--name", "one")
        wait_until(lambda: self.status("/readyz") == 200, timeout=20)
        wait_until(lambda: self.client.get("/v1/workers").json()["items"], timeout=20)

    def status(self, path: str) -> int:
        """The status of a request to the API; 0 if it is not reachable."""
        try:
            return self.client.get(path).status_code
        except httpx2.TransportError:
            return 0

    def server(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a part of the fleet; its output goes to a file outside of the working folder."""
        with (self.folder.parent / f"{arguments[0]}.log").open("w") as log:
            return self.start(["leadhand", *arguments], output=log, **self.server_env)

    def close(self) -> None:
        self.client.close()
        super().close()
        self.redis.kill()
