"""What requests may hold and answers hold, as the OpenAPI description says it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from vauban.service.decoding import JSON, NPY, PICTURES

_BINARY = {"type": "string", "format": "binary"}

EVENT = {
    "type": "object",
    "properties": {
        "event": {"type": "string", "enum": ["accepted", "views", "radius", "done", "error"]},
        "data": {"type": "string", "description": "JSON"},
    },
    "required": ["event", "data"],
}
"""What a server-sent event of /certify is."""


class Problem(BaseModel):
    """Why a request was not answered."""

    detail: str | list[dict[str, Any]]


class About(BaseModel):
    """What the service answers with, and its limits."""

    model: str
    smoothing: str
    threat: dict[str, str]
    exact: bool
    shape: list[int]
    classes: list[str]
    input_range: list[float] | None
    limits: dict[str, float]
    version: str


class Health(BaseModel):
    """Whether requests are answered."""

    status: str
    detail: str | None = None


class Prediction(BaseModel):
    """The top k labels; empty where undecided."""

    labels: list[int]
    abstained: bool
    counts: list[int]
    votes: int
    alpha: float = Field(description="the answer is wrong with at most this probability; 0 where every view voted")


class RunState(BaseModel):
    """How far a run is."""

    id: str
    kind: str
    state: str
    inputs: int
    decided: int
    votes: int
    settings: dict[str, Any]
    created: float
    detail: str | None = None


class RunList(BaseModel):
    """Runs of the service, the newest first."""

    runs: list[RunState]


class Claim(BaseModel):
    """What is proven about one input; `radius` is rounded down, null where abstained."""

    index: int
    label: int
    radius: str | None
    abstained: bool
    truth: int | None


class ClaimList(BaseModel):
    """What is proven about the inputs of a run."""

    claim: str
    finished: bool
    claims: list[Claim]
    notes: list[str]


class CountList(BaseModel):
    """Counts per class: by number of votes, then by the input's number."""

    counts: dict[str, dict[str, list[int]]]


class RecordFiles(BaseModel):
    """The files of a sealed run folder, which `vauban verify` accepts."""

    files: dict[str, str]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The description of refusals; every route may refuse a token, a body, or a moment."""
    words = {
        400: "the request cannot be read",
        401: "the token is missing or wrong",
        404: "there is no such run",
        408: "the body came too slowly",
        409: "the run is not that far",
        413: "the body or the picture is too large",
        415: "the body is of a type that is not read",
        422: "the request asks for something that cannot be done",
        429: "too many requests are in progress; Retry-After says when to ask again",
        503: "the model failed its checks, or the service stops",
        504: "the answer took too long",
    }
    return {status: {"model": Problem, "description": words[status]} for status in sorted({401, 413, *statuses})}


def input_body(shape: tuple[int, ...], input_range: tuple[float, float] | None) -> dict[str, Any]:
    """The body of a request with one input."""
    values = _values(shape, input_range)
    content: dict[str, Any] = {JSON: {"schema": _object({"values": values}, ["values"])}, NPY: {"schema": _BINARY}}
    if len(shape) == 3 and shape[0] in (1, 3):
        content |= {kind: {"schema": _BINARY} for kind in PICTURES}
    return {"requestBody": {"required": True, "content": content}}


def batch_body(shape: tuple[int, ...], input_range: tuple[float, float] | None, most: int) -> dict[str, Any]:
    """The body of a batch; labels are a second array after the inputs, so JSON has none."""
    inputs = {"type": "array", "minItems": 1, "maxItems": most, "items": _values(shape, input_range)}
    content = {JSON: {"schema": _object({"inputs": inputs}, ["inputs"])}, NPY: {"schema": _BINARY}}
    return {"requestBody": {"required": True, "content": content}}


def _values(shape: tuple[int, ...], input_range: tuple[float, float] | None) -> dict[str, Any]:
    low, high = input_range or (-1e30, 1e30)
    schema: dict[str, Any] = {"type": "number", "minimum": low, "maximum": high}
    for side in reversed(shape):
        schema = {"type": "array", "minItems": side, "maxItems": side, "items": schema}
    return schema


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
