"""Runs a service with uvicorn, until it is stopped."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from vauban.errors import MissingExtra
from vauban.service.desk import Desk

_SWITCH_SECONDS = (
    0.0005  # how long Python code of requests may keep the voting thread waiting; Python's own is ten times longer
)


def server(desk: Desk, host: str, port: int, token: str | None, log_level: str = "info") -> Any:
    """The server of a service; `run()` of it answers until Ctrl-C or SIGTERM."""
    try:
        import uvicorn

        from vauban.service.app import make_app
    except ImportError:
        raise MissingExtra("FastAPI and uvicorn", "serve", "a service") from None
    sys.setswitchinterval(_SWITCH_SECONDS)
    config = uvicorn.Config(
        make_app(desk, token),
        host=host,
        port=port,
        log_level=log_level,
        access_log=False,
        limit_concurrency=4 * desk.limits.queue + 64,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=32 * 1024,
        server_header=False,
    )
    return uvicorn.Server(config)


@contextlib.contextmanager
def running(desk: Desk, token: str | None = None, host: str = "127.0.0.1") -> Iterator[str]:
    """Context in which the service answers from a thread of this process, at the address that is yielded."""
    one = server(desk, host, 0, token, "warning")
    thread = threading.Thread(target=one.run, daemon=True)
    thread.start()
    try:
        while not one.started and thread.is_alive():
            time.sleep(0.01)
        if not one.started:
            raise RuntimeError("the service did not start")
        port = one.servers[0].sockets[0].getsockname()[1]
        yield f"http://{host}:{port}"
    finally:
        one.should_exit = True
        thread.join()
