"""What Schemathesis cannot know from the description: what an array is, which radius a number of votes can
reach, and what needs a label."""

import io

import numpy as np
import schemathesis
from hypothesis import strategies as st


def saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


numbers = st.lists(st.floats(0, 1, width=32), min_size=4, max_size=4)
schemathesis.openapi.media_type(
    "application/x-npy", numbers.map(lambda found: saved(np.array(found, dtype=np.float32)))
)


@schemathesis.hook
def filter_case(context: schemathesis.HookContext, case: schemathesis.Case) -> bool:
    """Leave out what a sentence refuses: radii of batches that their n and alpha may not reach, and a top k without
    labels."""
    query = case.query or {}
    try:
        radius, k = float(query.get("radius", 0.0)), int(query.get("k", 1))
    except (TypeError, ValueError):  # which is refused for what it is
        return True
    if case.operation.path == "/certify":
        return k <= 1 or "label" in query
    return case.operation.path != "/batch" or (k <= 1 and not radius >= 1e-3)


@schemathesis.deserializer("text/html")
def read_page(context: schemathesis.DeserializationContext, response: schemathesis.Response) -> str:
    """A page is its text."""
    return response.content.decode()
