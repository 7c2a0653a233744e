"""The routes of the service. (Annotations are evaluated here: FastAPI reads them, and they hold limits of the service.)"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from vauban import __version__
from vauban.errors import BadInput, CannotWrite, Incomplete, VaubanError
from vauban.prediction import predictions
from vauban.report.numbers import radius_text
from vauban.service.decoding import TooLarge, WrongType, media_type, read_input, read_inputs
from vauban.service.desk import Busy, Desk, Unwell
from vauban.service.folder import Full, NoSuchRun, array_bytes, told
from vauban.service.growing import Event, Inbox, certify_events
from vauban.service.guard import App, Guard
from vauban.service.lanes import Ticket
from vauban.service.metrics import CONTENT
from vauban.service.schemas import (
    EVENT,
    About,
    ClaimList,
    CountList,
    Health,
    Prediction,
    RecordFiles,
    RunList,
    RunState,
    batch_body,
    input_body,
    problems,
)
from vauban.service.served import Asked
from vauban.service.voting import Stopping

EVENTS = "text/event-stream"
REPORT_POLICY = "sandbox allow-scripts allow-downloads"
"""Of a report, whose own policy is inside it; here, that it is no part of this site and cannot ask it."""
RunId = Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="the ID that the service gave")]
Alpha = Annotated[float, Query(ge=1e-12, lt=0.5, description="the answer is wrong with at most this probability")]

_STATUS: list[tuple[type[Exception], int]] = [
    (TooLarge, 413),
    (WrongType, 415),
    (NoSuchRun, 404),
    (Incomplete, 409),
    (Busy, 429),
    (Full, 429),
    (Unwell, 503),
    (Stopping, 503),
    (TimeoutError, 504),
    (CannotWrite, 503),
    (VaubanError, 422),
]
_PAGE = {
    "/": ("index.html", "text/html"),
    "/app.js": ("app.js", "text/javascript"),
    "/chart.js": ("chart.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
}


def make_app(desk: Desk, token: str | None = None, hosts: Sequence[str] | None = None) -> App:
    """The service as an ASGI application; it begins to vote when it is started, unless the desk has begun before.

    `hosts`: names by which it may be asked; None is any.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(desk.start)
        try:
            yield
        finally:
            await asyncio.to_thread(desk.close)

    api = FastAPI(
        title="Vauban",
        version=__version__,
        description="A route that takes query parameters refuses those that it does not know, with 422.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(_known_parameters)],
    )
    for kind, status in _STATUS:
        api.add_exception_handler(kind, _handler(status))
    _add_page(api)
    _add_answers(api, desk)
    _add_batch(api, desk)
    _add_runs(api, desk)
    return Guard(api, desk.limits, desk.metrics, token, hosts)


async def _known_parameters(request: Request) -> None:
    """Refuse query parameters that a route does not know: a misspelt one would be answered with its default value."""
    known = sorted(one.alias for one in request.scope["route"].dependant.query_params)
    unknown = [name for name in request.query_params if name not in known]
    if known and unknown:
        raise BadInput(f"the parameter {unknown[0][:40]!r} is not known here: known are {', '.join(known)}")


def _handler(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(_: Request, problem: Exception) -> Response:
        headers = {"Retry-After": str(getattr(problem, "seconds", 5))} if status in (429, 503) else None
        text = told(problem) or "the answer took too long: ask for fewer votes, or again later"
        return JSONResponse({"detail": text}, status, headers)

    return answer


def _add_page(api: FastAPI) -> None:
    folder = files("vauban.service") / "page"

    def add(path: str, name: str, kind: str) -> None:
        content = (folder / name).read_bytes()

        @api.get(path, include_in_schema=False)
        async def page() -> Response:
            return Response(content, media_type=kind)

    for path, (name, kind) in _PAGE.items():
        add(path, name, kind)


def _add_answers(api: FastAPI, desk: Desk) -> None:
    served, limits, classes = desk.served, desk.limits, desk.served.smoothed.num_classes
    body = input_body(served.shape, served.smoothed.input_range)

    async def read(request: Request, label: int | None = None) -> Any:
        kind, content = media_type(request.headers.get("content-type")), await request.body()
        return await asyncio.to_thread(
            lambda: served.collect(read_input(content, kind, served.shape, limits.pixels), label)
        )

    @api.get("/healthz", response_model=Health, responses={503: {"model": Health, "description": "not well"}})
    async def healthz() -> Response:
        """Whether the service answers requests."""
        problem = desk.problem
        state = {"status": "ok" if problem is None else "failed", "detail": problem}
        return JSONResponse(state, 200 if problem is None else 503)

    @api.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems()})
    def metrics() -> Response:
        """Counters for Prometheus."""
        desk.metrics.batches.set(desk.open_batches())
        return Response(desk.metrics.text(), media_type=CONTENT)

    @api.get("/about", response_model=About, responses=problems())
    async def about() -> dict[str, Any]:
        """The model, the smoothing, the shape of an input, and limits."""
        return desk.about()

    @api.post(
        "/predict", response_model=Prediction, responses=problems(408, 415, 422, 429, 503, 504), openapi_extra=body
    )
    async def predict(
        request: Request,
        k: Annotated[int, Query(ge=1, lt=classes, description="how many labels")] = 1,
        n: Annotated[int, Query(ge=1000, le=limits.votes, description="votes; exact smoothings take none")] = 1000,
        alpha: Alpha = 0.001,
    ) -> dict[str, Any]:
        """The top k labels of one input, or undecided."""
        with desk.admitted():
            batch = await read(request)
            await desk.ready(batch)
            sampled = {} if served.exact else {"n": n, "alpha": alpha}
            asked = served.predicting(batch, k, sampled.get("n"), sampled.get("alpha"))  # type: ignore[arg-type]
            await asyncio.wait_for(_vote(desk, asked), limits.seconds)
            found = predictions(asked.method, asked.votes)
            counts = found.counts[0].tolist()
            labels = [] if found[0] is None else list(found[0])
            wrong = 0.0 if served.exact else alpha
            votes = asked.votes.views if served.exact else n
            return {"labels": labels, "abstained": found[0] is None, "counts": counts, "votes": votes, "alpha": wrong}

    @api.post(
        "/certify",
        responses={
            200: {
                "content": {EVENTS: {"schema": EVENT}},
                "description": "events: accepted, views, radius, done, error",
            },
            **problems(408, 415, 422, 429, 503),
        },
        response_class=StreamingResponse,
        openapi_extra=body,
    )
    async def certify(
        request: Request,
        seconds: Annotated[float, Query(gt=0, le=limits.seconds, description="how long votes are cast")] = min(
            10.0, limits.seconds
        ),
        votes: Annotated[
            int | None, Query(ge=100, le=limits.votes, description="the most votes that are counted")
        ] = None,
        radius: Annotated[float | None, Query(gt=0, description="stop once this radius is certified")] = None,
        alpha: Alpha = 0.001,
        n0: Annotated[int | None, Query(ge=1, le=10_000, description="uncounted votes that choose the label")] = None,
        label: Annotated[int | None, Query(ge=0, lt=classes, description="certify this label")] = None,
        k: Annotated[int, Query(ge=1, lt=classes, description="certify that it stays among the top k")] = 1,
        views: Annotated[int, Query(ge=0, le=16, description="views to show, with their votes")] = 0,
        keep: Annotated[bool, Query(description="keep the record among the runs of the service")] = False,
    ) -> StreamingResponse:
        """How far one input may be changed while its label stays, or stays among the top k: events while the radius grows.

        Above k=1 a sampled smoothing needs the label. The last event holds the files of a sealed run folder, which
        `vauban verify` accepts.
        """
        hold = desk.admitted()
        hold.__enter__()
        try:
            batch = await read(request, label)
            await desk.ready(batch)
            asked = served.certifying(batch, alpha, n0, k)
        except BaseException:
            hold.__exit__(None, None, None)
            raise
        limited = {"seconds": seconds, "votes": votes or limits.votes, "radius": radius, "views": views}
        events = certify_events(served, desk.voting, asked, **limited)  # type: ignore[arg-type]

        stream = (_sse(event) async for event in desk.noted(events, keep))
        return _HeldResponse(stream, hold)


class _HeldResponse(StreamingResponse):
    """Events of a request that has its place until the answer is over, even if the caller leaves before it begins."""

    def __init__(self, events: AsyncIterator[bytes], hold: AbstractContextManager[None]):
        super().__init__(events, media_type=EVENTS)
        self._hold = hold

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hold.__exit__(None, None, None)


async def _vote(desk: Desk, asked: Asked) -> None:
    """Cast all votes of a prediction."""
    inbox = Inbox()
    ticket = Ticket(asked.job(desk.served), inbox.tell)
    desk.voting.submit(ticket)
    try:
        done = False
        while not done:
            for item in await inbox.take(desk.limits.seconds, desk.limits.votes + 1):
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    done = True
                else:
                    asked.votes.add(item[1])
    finally:
        desk.voting.cancel(ticket)


def _sse(event: Event) -> bytes:
    name, content = event
    return f"event: {name}\ndata: {json.dumps(content, allow_nan=False)}\n\n".encode()


def _add_batch(api: FastAPI, desk: Desk) -> None:
    served, limits, classes = desk.served, desk.limits, desk.served.smoothed.num_classes
    body = batch_body(served.shape, served.smoothed.input_range, limits.batch_inputs)

    @api.post(
        "/batch",
        status_code=202,
        response_model=RunState,
        responses=problems(408, 415, 422, 429, 503),
        openapi_extra=body,
    )
    async def batch(
        request: Request,
        n: Annotated[int, Query(ge=1000, le=limits.batch_votes, description="votes for each input, at most")] = 10_000,
        alpha: Alpha = 0.001,
        radius: Annotated[float | None, Query(gt=0, description="stop each input once this radius is decided")] = None,
        k: Annotated[int, Query(ge=1, lt=classes, description="certify that labels stay among the top k")] = 1,
    ) -> Any:
        """Certify many inputs in the background, as a run that survives a restart.

        Above k=1 a sampled smoothing needs labels: a second array after the inputs, which JSON does not have.
        """
        kind, content = media_type(request.headers.get("content-type")), await request.body()
        inputs, labels = await asyncio.to_thread(read_inputs, content, kind, served.shape)
        if len(inputs) > limits.batch_inputs:
            raise BadInput(f"{len(inputs)} inputs: a batch has at most {limits.batch_inputs}; send several")
        settings = await asyncio.to_thread(desk.batch_settings, inputs, labels, n, alpha, radius, k)
        arrays = {"inputs.npy": array_bytes(inputs)}
        if labels is not None:
            arrays["labels.npy"] = array_bytes(np.array(labels, dtype=np.int64))
        return await asyncio.to_thread(desk.add_batch, settings, len(inputs), arrays)


def _add_runs(api: FastAPI, desk: Desk) -> None:
    @api.get("/runs", response_model=RunList, responses=problems(422))
    def runs(
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        state: Annotated[Literal["done", "failed", "cancelled", "running", "waiting"] | None, Query()] = None,
    ) -> dict[str, Any]:
        """Runs of the service, the newest first."""
        return {"runs": [one for one in desk.folder.described() if state in (None, one["state"])][:limit]}

    @api.get("/runs/{id}", response_model=RunState, responses=problems(404, 422))
    def run(id: RunId) -> dict[str, Any]:
        """How far a run is."""
        return desk.folder.entry(id).describe()

    @api.post("/runs/{id}/cancel", response_model=RunState, responses=problems(404, 422))
    def cancel(id: RunId) -> dict[str, Any]:
        """Stop a batch; what is counted stays."""
        entry = desk.folder.entry(id)
        entry.cancel()
        return entry.describe()

    @api.get("/runs/{id}/claims", response_model=ClaimList, responses=problems(404, 409, 422))
    def claims(id: RunId) -> dict[str, Any]:
        """What is proven about the inputs that have enough votes."""
        run = desk.folder.entry(id).opened()
        certs = run.certificates()
        listed = [
            {
                "index": int(certs.index[i]),
                "label": int(certs.label[i]),
                "radius": None if certs.abstained[i] else radius_text(float(certs.radius[i]), certs.threat),
                "abstained": bool(certs.abstained[i]),
                "truth": None if certs.truth is None else int(certs.truth[i]),
            }
            for i in range(len(certs))
        ]
        return {"claim": run.manifest.claim, "finished": run.finished, "claims": listed, "notes": list(certs.notes)}

    page: dict[int | str, dict[str, Any]] = {
        200: {
            "content": {"text/html": {"schema": {"type": "string"}}},
            "description": "one page, which needs no network",
        }
    }

    @api.get("/runs/{id}/report", responses={**page, **problems(404, 409, 422)}, response_class=Response)
    def report(id: RunId) -> HTMLResponse:
        """The report page of a run, with its pictures if it is a batch."""
        return HTMLResponse(desk.report(id), headers={"Content-Security-Policy": REPORT_POLICY})

    @api.get("/runs/{id}/counts", response_model=CountList, responses=problems(404, 409, 422))
    def counts(id: RunId) -> dict[str, Any]:
        """The counts behind the claims."""
        found = desk.folder.entry(id).opened().counts
        rows = {str(look): {str(i): row.tolist() for i, row in some.items()} for look, some in found.items()}
        return {"counts": rows}

    @api.get("/runs/{id}/record", response_model=RecordFiles, responses=problems(404, 409, 422))
    def record(id: RunId) -> dict[str, Any]:
        """The files of a finished run, for `vauban verify`."""
        return {"files": desk.folder.entry(id).files()}
