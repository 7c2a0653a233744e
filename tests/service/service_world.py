"""A service of a tiny classifier: three classes cut by the mean of four numbers."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch

import vauban as vb
from vauban.client import Client
from vauban.service.desk import Desk
from vauban.service.running import running
from vauban.service.served import Served
from vauban.service.settings import Limits

BRIGHT = np.full((1, 2, 2), 230, dtype=np.uint8)


def half_spaces(views: torch.Tensor) -> torch.Tensor:
    """Scores of three classes, cut at 0.25 and 0.75."""
    mean = views.flatten(1).mean(dim=1)
    return torch.stack([0.25 - mean, -(mean - 0.5).abs() + 0.25, mean - 0.75], dim=1)


@dataclass(frozen=True)
class World:
    """A service that runs: its desk, its address, a client."""

    desk: Desk
    url: str
    client: Client

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content of one answer."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=300)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()


def desk(folder: Path, smoothing: str = "gaussian:sigma=0.25", limits: Limits | None = None, **options: Any) -> Desk:
    """The service, not running."""
    exact = smoothing.startswith("splitting")
    blocks = {"rows": 40} if exact else {"rows": 40, "block": 10}
    smoothed = vb.SmoothedClassifier(options.pop("model", half_spaces), smoothing, num_classes=3, **blocks)
    return Desk(Served(smoothed, options.pop("shape", (1, 2, 2))), folder, limits, **options)


@contextmanager
def service(folder: Path, token: str | None = None, **options: Any) -> Iterator[World]:
    """Context in which the service runs."""
    one = desk(folder, **options)
    with running(one, token) as url:
        yield World(one, url, Client(url, token, retries=0))
