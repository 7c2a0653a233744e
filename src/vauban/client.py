"""Asks a service (`vauban serve`) for predictions, certificates and batches; needs NumPy alone.

>>> from vauban.client import Client
>>> client = Client("http://localhost:8000")            # doctest: +SKIP
>>> certificate = client.certify(picture, seconds=5)    # doctest: +SKIP
>>> certificate.label, certificate.radius               # doctest: +SKIP
(7, 0.848)
>>> certificate.save("runs/mine").verify()              # doctest: +SKIP
"""

from __future__ import annotations

import http.client
import io
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np

from vauban.errors import BadInput, RunRefused, VaubanError

__all__ = ["Client", "RemoteBatch", "RemoteCertificate", "ServiceError"]

_AWAY, _RESTART_SECONDS = (0, 502, 503), 120.0  # answers of a service that is started again, and how long that may take
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9]+)?")
_ENDINGS = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
}


class ServiceError(VaubanError):
    """The service refused a request; `status`: of its answer, 0 if there was none, 200 if it failed later."""

    def __init__(self, status: int, detail: str, retry_after: float | None = None):
        super().__init__(f"the service answered {status}: {detail}" if status >= 400 else detail)
        self.status, self.retry_after = status, retry_after


@dataclass(frozen=True)
class RemoteCertificate:
    """What a service proved about one input: `radius` is None where it abstained. `files`: of the sealed run folder."""

    label: int
    radius: float | None
    abstained: bool
    counts: list[int]
    votes: int
    claim: str
    files: Mapping[str, str] = field(repr=False)
    id: str | None = None

    def save(self, path: str | Path) -> Any:
        """Write the run folder, and open it; `verify()` of the result recomputes the claim from its votes."""
        return save_files(path, self.files)


class Client:
    """A service at `url`, with its `token` if it has one.

    Where the service is busy, a request is made again after the time it asks for, at most `retries` times. `timeout`: seconds
    without an answer.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 60.0, retries: int = 5):
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"{url!r} is not the address of a service: one such as http://localhost:8000 is needed")
        self._parts, self._token, self._timeout, self._retries = parts, token, timeout, retries

    def about(self) -> dict[str, Any]:
        """The model, the smoothing, the shape of an input, and limits."""
        return self._json("GET", "/about")

    def predict(self, x: Any, **asked: Any) -> dict[str, Any]:
        """The top labels of an input (an array, or the path of a picture); `asked`: k, n, alpha."""
        return self._json("POST", "/predict", asked, *_body(x))

    def certify(
        self, x: Any, *, on_event: Callable[[str, dict[str, Any]], None] | None = None, **asked: Any
    ) -> RemoteCertificate:
        """The certificate of an input (an array, or the path of a picture).

        `asked`: seconds, votes, radius, alpha, n0, label, k, views, keep. `on_event` is called with every event as it comes.
        """
        for name, content in self.events(x, **asked):
            if on_event is not None:
                on_event(name, content)
            if name == "error":
                raise ServiceError(200, content["detail"])
            if name == "done":
                radius = None if content["radius"] is None else float(content["radius"])
                shared = {key: content[key] for key in ("label", "abstained", "counts", "votes", "claim", "files")}
                return RemoteCertificate(radius=radius, id=content.get("id"), **shared)
        raise ServiceError(200, "the service's answer ended before the certificate was done: ask again")

    def events(self, x: Any, **asked: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """The events of a request to certify as they come: accepted, views, radius, …, done or error."""
        connection, answer = self._request("POST", "/certify", asked, *_body(x))
        try:
            yield from _events(answer)
        finally:
            connection.close()

    def batch(self, x: Any, y: Any = None, **asked: Any) -> RemoteBatch:
        """Certify inputs [m, ...], of labels [m] if given, in the background; `asked`: n, alpha, radius, k."""
        content = _array(x) + (b"" if y is None else _array(np.asarray(y, dtype=np.int64)))
        return RemoteBatch(self, self._json("POST", "/batch", asked, content, "application/x-npy")["id"])

    def runs(self, **asked: Any) -> list[RemoteBatch]:
        """Runs of the service, the newest first; `asked`: limit, state."""
        return [RemoteBatch(self, one["id"]) for one in self._json("GET", "/runs", asked)["runs"]]

    def _json(
        self, method: str, path: str, asked: Mapping[str, Any] = {}, body: bytes = b"", kind: str | None = None
    ) -> dict[str, Any]:
        connection, answer = self._request(method, path, asked, body, kind)
        try:
            found: dict[str, Any] = json.loads(answer.read())
            return found
        finally:
            connection.close()

    def _request(
        self, method: str, path: str, asked: Mapping[str, Any], body: bytes = b"", kind: str | None = None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        for attempt in range(self._retries + 1):
            try:
                return self._once(method, path, asked, body, kind)
            except ServiceError as problem:
                if problem.retry_after is None or attempt == self._retries:
                    raise
                time.sleep(min(problem.retry_after, self._timeout))
        raise AssertionError

    def _once(
        self, method: str, path: str, asked: Mapping[str, Any], body: bytes, kind: str | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        secure = self._parts.scheme == "https"
        make = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = make(self._parts.hostname or "", self._parts.port, timeout=self._timeout)
        given = {key: str(value).lower() if isinstance(value, bool) else value for key, value in asked.items()}
        query = urlencode({key: value for key, value in given.items() if value is not None})
        headers = {} if kind is None else {"Content-Type": kind}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(
                method, self._parts.path.rstrip("/") + path + ("?" + query if query else ""), body, headers
            )
            answer = connection.getresponse()
            if answer.status >= 400:
                raise _refusal(answer)
            return connection, answer
        except (OSError, http.client.HTTPException) as problem:
            connection.close()
            where = f"{self._parts.scheme}://{self._parts.netloc.rpartition('@')[2]}{self._parts.path}"
            raise ServiceError(
                0,
                f"no service answers at {where} ({problem or type(problem).__name__}): see that vauban serve runs "
                "there, or give the address that it prints",
            ) from None
        except BaseException:
            connection.close()
            raise


@dataclass(frozen=True)
class RemoteBatch:
    """A run of the service."""

    client: Client
    id: str

    @property
    def state(self) -> dict[str, Any]:
        """How far it is: state, inputs, decided, votes, …"""
        return self.client._json("GET", f"/runs/{self.id}")

    def wait(self, seconds: float | None = None, every: float = 0.5) -> dict[str, Any]:
        """Wait until it is done; its state. A batch that failed or was cancelled raises; a service that is started again in the
        meantime does not."""
        began = heard = time.monotonic()
        while True:
            try:
                found = self.state
                heard = time.monotonic()
                if found["state"] not in ("waiting", "running"):
                    break
            except ServiceError as problem:
                if problem.status not in _AWAY or time.monotonic() - heard > _RESTART_SECONDS:
                    raise
            if seconds is not None and time.monotonic() - began > seconds:
                raise ServiceError(200, f"batch {self.id} is not done after {seconds:g} s: wait longer, or cancel it")
            time.sleep(every)
        if found["state"] != "done":
            raise ServiceError(
                200, f"batch {self.id} {found['state']}" + (f": {found['detail']}" if found["detail"] else "")
            )
        return found

    def cancel(self) -> dict[str, Any]:
        """Stop it; what is counted stays."""
        return self.client._json("POST", f"/runs/{self.id}/cancel")

    def claims(self) -> dict[str, Any]:
        """What is proven about the inputs that have enough votes."""
        return self.client._json("GET", f"/runs/{self.id}/claims")

    def counts(self) -> dict[str, Any]:
        """The counts behind the claims."""
        return self.client._json("GET", f"/runs/{self.id}/counts")["counts"]

    def report(self, path: str | Path) -> Path:
        """Write its report page here."""
        from vauban.validation import path_of

        place = path_of("path", path)
        connection, answer = self.client._request("GET", f"/runs/{self.id}/report", {})
        try:
            place.write_bytes(answer.read())
        finally:
            connection.close()
        return place

    def save(self, path: str | Path) -> Any:
        """Write the run folder here, and open it."""
        return save_files(path, self.client._json("GET", f"/runs/{self.id}/record")["files"])


def save_files(path: str | Path, files: Mapping[str, str]) -> Any:
    """Write the files of a run folder that a service sent to a new folder, and open it; only plain names are written."""
    from vauban.files import replace_file
    from vauban.runs.run import Run
    from vauban.validation import path_of

    folder = path_of("path", path)
    if not all(_NAME.fullmatch(name) for name in files):
        raise RunRefused("the service sent files with names that no run folder has: nothing is written")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise RunRefused(f"{folder} is not empty: give another path")
    for name, text in files.items():
        replace_file(folder / name, text.encode())
    return Run.open(folder)


def _body(x: Any) -> tuple[bytes, str]:
    """The content and type of the body for one input."""
    if isinstance(x, str | Path):
        ending = Path(x).suffix.lower()
        if ending not in _ENDINGS:
            raise BadInput(f"{x}: a picture that ends with one of {', '.join(_ENDINGS)} is needed, or an array")
        return Path(x).read_bytes(), _ENDINGS[ending]
    return _array(x), "application/x-npy"


def _array(x: Any) -> bytes:
    array = np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)
    if array.dtype.kind == "f":
        array = array.astype("<f4")
    if array.dtype.str not in ("|u1", "<f4", "<i8"):
        raise BadInput(f"an array of type {array.dtype}: uint8 pictures, or floats, are needed")
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(array), allow_pickle=False)
    return stream.getvalue()


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for raw in answer:
        line = raw.decode().rstrip("\r\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def _refusal(answer: http.client.HTTPResponse) -> ServiceError:
    content = answer.read(100_000)
    try:
        detail = json.loads(content)["detail"]
    except (ValueError, KeyError, TypeError):
        detail = content.decode(errors="replace")[:200]
    wait = answer.getheader("Retry-After", "")
    return ServiceError(answer.status, _sentence(detail), float(wait) if wait.isdigit() else None)


def _sentence(detail: Any) -> str:
    """Why a request was refused, in words; parameters that FastAPI refuses are a list of what is wrong with each."""
    if not isinstance(detail, list) or not all(isinstance(one, dict) and "msg" in one for one in detail):
        return str(detail)
    return "; ".join(_wrong(one) for one in detail)


def _wrong(one: Mapping[str, Any]) -> str:
    """What is wrong with one parameter: "alpha=2: Input should be less than 0.5"."""
    place = one.get("loc")
    name = str(place[-1]) if isinstance(place, list) and place else "the request"
    given = one.get("input")
    return f"{name}={given}: {one['msg']}" if isinstance(given, str | int | float) else f"{name}: {one['msg']}"
