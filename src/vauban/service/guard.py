"""What stands before the routes: the token, the sizes of bodies, how long they may take, headers, and metrics."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from vauban.service.metrics import Metrics
from vauban.service.settings import Limits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/", "/app.js", "/chart.js", "/style.css", "/healthz", "/openapi.json")
"""Paths that need no token: the page, which asks for one, and what says that the service is there."""

_HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    b"img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}


class _Refused(Exception):
    """A request that is not let in."""

    def __init__(self, status: int, detail: str):
        super().__init__(detail)
        self.status, self.detail = status, detail


class Guard:
    """Lets a request in if it has the token and keeps to the limits on its body, which is read before the routes see it."""

    def __init__(
        self, app: App, limits: Limits, metrics: Metrics, token: str | None, hosts: Sequence[str] | None = None
    ):
        self._app, self._limits, self._metrics, self._hosts = app, limits, metrics, hosts
        self._batches = 0  # whose bodies are here
        self._token = None if token is None else _digest(token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name.lower() for name, _ in message.get("headers", [])}
                message["headers"] = [
                    *message.get("headers", []),
                    *((name, value) for name, value in _HEADERS.items() if name not in own),
                ]
            async with asyncio.timeout(self._limits.body_seconds):
                await send(message)

        try:
            self._check_host(scope)
            self._check_token(scope)
            with self._room(scope["path"] == "/batch"):
                body = await self._body(scope, receive)
                await self._app(scope, _replayed(body, receive), sending)
        except _Refused as refusal:
            await _answer(sending, refusal)
        except TimeoutError:
            return
        finally:
            self._note(scope, status, time.monotonic() - began)

    def _check_host(self, scope: Scope) -> None:
        """Refuse a request that names another host: a page elsewhere may have its name lead to this machine."""
        if self._hosts is None:
            return
        given = dict(scope["headers"]).get(b"host", b"").decode("latin1")
        try:
            name = urlsplit(f"//{given}").hostname
        except ValueError:  # such as [::1
            name = None
        if name not in self._hosts:
            raise _Refused(
                421, f"this service answers as {', '.join(self._hosts)}: another name needs a token (--token)"
            )

    @contextmanager
    def _room(self, large: bool) -> Iterator[None]:
        """Context of a request whose body may be large, of which a few are held at a time."""
        if large and self._batches >= self._limits.batch_bodies:
            raise _Refused(429, f"{self._limits.batch_bodies} batches are being received: ask again in a few seconds")
        self._batches += large
        try:
            yield
        finally:
            self._batches -= large

    def _check_token(self, scope: Scope) -> None:
        """Refuse a request without the token; hashes are compared, in constant time."""
        if self._token is None or scope["path"] in OPEN:
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, token = given.partition(b" ")
        right = hmac.compare_digest(_digest(token.strip()), self._token)
        if not right or kind.lower() != b"bearer":
            raise _Refused(401, "this service needs its token: Authorization: Bearer TOKEN")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, at most as large and as slow as allowed."""
        most = self._limits.batch_upload if scope["path"] == "/batch" else self._limits.upload
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 15 or int(length) > most:
            raise _Refused(413, f"a body of {length.decode('latin1')[:20]} bytes: at most {most} are read here")
        try:
            return await asyncio.wait_for(_read(receive, most), self._limits.body_seconds)
        except TimeoutError:
            raise _Refused(408, f"the body took longer than {self._limits.body_seconds:g} s: send it again") from None

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope.get("route")
        path = getattr(route, "path", "other")
        self._metrics.requests.labels(path, str(status)).inc()
        self._metrics.seconds.labels(path).observe(seconds)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


async def _read(receive: Receive, most: int) -> bytes:
    parts, length = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(400, "the caller left before the body was complete")
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if length > most:
            raise _Refused(413, f"a body of more than {most} bytes: at most so many are read here")
        if not message.get("more_body"):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """What the routes receive: the body at once, and later that the caller left."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _answer(send: Send, refusal: _Refused) -> None:
    content = json.dumps({"detail": refusal.detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.status in (408, 413):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
