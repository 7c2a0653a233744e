"""Runs a service with uvicorn, until it is stopped."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from vauban.errors import BadInput, MissingExtra
from vauban.service.desk import Desk

_SWITCH_SECONDS = (
    0.0005  # how long Python code of requests may keep the voting thread waiting; Python's own is ten times longer
)


_LOCAL = ("localhost", "127.0.0.1", "::1")
_BACKLOG = 2048  # connections that wait to be taken in; uvicorn's own
_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of this host, bound to the port (0: a free one for all), not listening yet."""
    bound: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                one = socket.socket(family, kind, protocol)
                bound.append(one)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                own = port or bound[0].getsockname()[1]
                one.bind((address[0], own, *address[2:]))
            except OSError as problem:
                if problem.errno not in _ABSENT:
                    raise
                bound.pop().close()
        if not bound:
            raise OSError(errno.EADDRNOTAVAIL, "cannot assign requested address")
    except (OSError, UnicodeError) as problem:
        close(bound)
        raise _refusal(host, port, problem) from None
    return bound


def listen(sockets: list[socket.socket], host: str, port: int) -> None:
    """Let connections in at sockets of `bind`; they wait until they are answered."""
    try:
        for one in sockets:
            one.listen(_BACKLOG)
    except OSError as problem:  # another process was faster
        close(sockets)
        raise _refusal(host, port, problem) from None


def close(sockets: list[socket.socket]) -> None:
    """Give ports back."""
    for one in sockets:
        one.close()


def _refusal(host: str, port: int, problem: Exception) -> BadInput:
    """Why nothing can listen there, and what to do."""
    number, text = getattr(problem, "errno", None), getattr(problem, "strerror", None) or problem
    if number == errno.EADDRINUSE:
        return BadInput(
            f"port {port} of {host} is in use by another program: give another one with --port, or --port 0 for any"
        )
    if number in (errno.EACCES, errno.EPERM):
        return BadInput(f"port {port} of {host} is not for this user ({text}): give one of 1024 or above with --port")
    return BadInput(
        f"--host {host} is no address of this machine ({text}): give one, such as 127.0.0.1, or 0.0.0.0 for every one"
    )


def server(desk: Desk, host: str, port: int, token: str | None, log_level: str = "info") -> Any:
    """The server of a service; `run(sockets)` of it answers at sockets of `bind` until Ctrl-C or SIGTERM."""
    try:
        import uvicorn

        from vauban.service.app import make_app
        from vauban.service.connections import PromptProtocol
    except ImportError:
        raise MissingExtra("FastAPI and uvicorn", "serve", "a service") from None
    sys.setswitchinterval(_SWITCH_SECONDS)
    config = uvicorn.Config(
        make_app(desk, token, _LOCAL if token is None and host in _LOCAL else None),
        host=host,
        port=port,
        http=PromptProtocol,
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
    interval = sys.getswitchinterval()
    one, sockets = server(desk, host, 0, token, "warning"), bind(host, 0)
    try:
        desk.start()
    except BaseException:
        close(sockets)
        raise
    thread = threading.Thread(target=one.run, args=(sockets,), daemon=True)
    thread.start()
    try:
        while not one.started and thread.is_alive():
            time.sleep(0.01)
        if not one.started:
            raise RuntimeError("the service did not start")
        yield f"http://{host}:{sockets[0].getsockname()[1]}"
    finally:
        one.should_exit = True
        thread.join()
        sys.setswitchinterval(interval)
