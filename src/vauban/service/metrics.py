"""What Prometheus reads at /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counters of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.votes = Counter("vauban_votes", "votes counted", registry=self._registry)
        self.requests = Counter("vauban_requests", "answers", ["path", "status"], registry=self._registry)
        self.seconds = Histogram(
            "vauban_request_seconds",
            "seconds until an answer is complete",
            ["path"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.first_radius = Histogram(
            "vauban_first_radius_seconds", "seconds until a first radius", buckets=_SECONDS, registry=self._registry
        )
        self.in_progress = Gauge(
            "vauban_requests_in_progress", "requests that votes are cast for", registry=self._registry
        )
        self.batches = Gauge("vauban_batches_open", "batches waiting or running", registry=self._registry)

    @property
    def counted(self) -> float:
        """Votes counted so far."""
        return self._registry.get_sample_value("vauban_votes_total") or 0.0

    def text(self) -> bytes:
        """All of them in Prometheus' text format."""
        return generate_latest(self._registry)
