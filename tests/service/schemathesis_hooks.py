"""What Schemathesis sends where the description says a body is an array: arrays of four numbers, alone or in batches."""

import io

import numpy as np
import schemathesis
from hypothesis import strategies as st


def saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


numbers = st.lists(st.floats(0, 1, width=32), min_size=4, max_size=4)
schemathesis.openapi.media_type("application/x-npy", numbers.map(lambda found: saved(np.array(found, dtype=np.float32))))
