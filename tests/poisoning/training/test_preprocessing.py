"""Preprocessing, against the textbook."""

import numpy as np
import pytest

from vauban.errors import BadInput
from vauban.poisoning.training.preprocessing import equalise, preprocess

PICTURES = np.random.default_rng(0).integers(0, 256, size=(300, 1, 4, 4), dtype=np.uint8)


def test_equalising_is_the_textbook_formula() -> None:
    for picture in PICTURES[:20, 0]:
        values, counts = np.unique(picture, return_counts=True)
        up_to = np.cumsum(counts)
        table = {
            v: int(np.floor(255 * (c - up_to[0]) / (16 - up_to[0]) + 0.5)) for v, c in zip(values, up_to, strict=True)
        }
        slow = np.vectorize(table.get)(picture)
        assert np.array_equal(equalise(picture[None, None])[0, 0], slow)


def test_bad_preprocessing_is_refused() -> None:
    with pytest.raises(BadInput, match="not a known preprocessing"):
        preprocess("magic", PICTURES)
    with pytest.raises(BadInput, match="8-bit"):
        equalise(PICTURES.astype(np.float32))
