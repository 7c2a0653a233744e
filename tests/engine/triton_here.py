"""Triton for tests of kernels: imported before them, it takes Triton's interpreter where there is no GPU, or skips the tests.

torch brings Triton along where it brings CUDA; elsewhere `make test-slow` fetches it.
"""

from __future__ import annotations

import os
import sys

import pytest
import torch

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")

if not GPU:
    os.environ["TRITON_INTERPRET"] = "1"
sys.path.append(os.environ.get("TRITON_FOLDER", ""))
pytest.importorskip("triton", reason="make test-slow has it")
