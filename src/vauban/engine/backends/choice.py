"""Chooses the backend of a network: the one asked for, the one its run began with, or the first that can run it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from torch import nn

from vauban.engine.backends.onnx_network import OnnxNetwork
from vauban.engine.backends.protocol import Backend, installed
from vauban.engine.backends.runner import Runner, processor
from vauban.engine.backends.with_onnxruntime import OnnxRuntime
from vauban.engine.backends.with_openvino import OpenVINO
from vauban.engine.fusing.runner import Fused, FusedRunner
from vauban.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from vauban.engine.network import Network

MADE: Mapping[str, Callable[[], Backend]] = {"openvino": OpenVINO, "onnxruntime": OnnxRuntime}
"""The backends other than torch, in the order in which `auto` tries them for an ONNX file."""

FUSED = Fused.name

_FOR_MODULES = ("openvino",)  # those that were never slower than torch where they were measured (docs/backends.md)

_NEEDED = ("onnx", "onnxscript")  # to export a torch module


def runner_for(network: Network, compile: bool, of_run: str | None) -> Runner | FusedRunner | None:
    """The runner of a network; None where torch runs it. `of_run`: the backend of a run that is resumed, None for a new run.

    A network for which nothing was asked keeps its run's backend, and so does one with "auto".
    """
    asked = _asked(network, compile, of_run)
    if asked == FUSED or (asked == "auto" and _may_fuse(network)):
        return _fused(network, optional=asked == "auto")
    obstacle = "" if asked == "torch" else _obstacle(network, compile)
    found: list[Backend] = []
    if asked == "auto":
        found = _possible(network, obstacle)
    elif asked != "torch":
        found = [_named(asked, network.precision, obstacle)]
    if not found:
        _warn_of_slow_bf16(network)
        return None
    return _kept(network, found, optional=asked == "auto" and not isinstance(network.source, OnnxNetwork))


def _asked(network: Network, compile: bool, of_run: str | None) -> str:
    """The backend that was asked for, or the run's; else torch, but for bf16 on a CPU, where torch is the slower one."""
    asked, source = network.backend, network.source
    if asked in (None, "auto") and of_run is not None:
        asked = of_run
    if isinstance(source, OnnxNetwork):
        if asked in ("torch", FUSED):
            raise BadInput(f"{source.name} is an ONNX file: give --backend onnxruntime, openvino or auto")
        return asked or "auto"
    chooses = network.precision == "bf16" and network.device.type == "cpu" and not compile
    return asked or ("auto" if chooses else "torch")


def _may_fuse(network: Network) -> bool:
    """Whether `auto` tries the fused graph: on a GPU in 16 bits, where it is expected to be faster (docs/backends.md)."""
    plain = network.stochastic is None and isinstance(network.source, nn.Module)
    return plain and network.device.type == "cuda" and network.precision in ("bf16", "fp16")


def _fused(network: Network, optional: bool) -> FusedRunner:
    """The network's fused runner if it has one for these weights, which has its programs; else a new one."""
    from vauban.engine.fingerprint import model_fingerprint

    source, before = network.source, network.runner
    if network.stochastic is not None:
        raise BadInput(
            f"backend {FUSED} with stochastic={network.stochastic!r}: a random model has no fixed graph; use backend torch"
        )
    if not isinstance(source, nn.Module):
        raise BadInput(f"backend {FUSED} needs a torch module, and the model is another callable: use backend torch")
    known = Fused().precisions()
    if network.precision not in known:
        raise BadInput(f"precision {network.precision} with backend {FUSED}: it computes in {', '.join(known)}")
    key = model_fingerprint(source, "")
    if isinstance(before, FusedRunner) and before.key == key:
        return before
    return FusedRunner(source, network.device, network.precision, key, optional)


def _named(asked: str, precision: str, obstacle: str) -> Backend:
    """The backend of this name; refused if it cannot run the network."""
    if asked not in MADE:
        raise BadInput(
            f"backend {asked!r} of the run is not one of torch, {FUSED}, {', '.join(MADE)}: use a newer version of Vauban"
        )
    if obstacle:
        raise BadInput(f"backend {asked} {obstacle}")
    backend = MADE[asked]()
    if precision not in backend.precisions():
        raise BadInput(
            f"precision {precision} with backend {asked}, which computes in {' or '.join(backend.precisions())} on this "
            "machine: use fp32"
        )
    return backend


def _possible(network: Network, obstacle: str) -> list[Backend]:
    """The backends that are installed and compute in the network's precision; none leaves the network to torch."""
    file = network.source if isinstance(network.source, OnnxNetwork) else None
    tried, needed = (_FOR_MODULES, _NEEDED) if file is None else (tuple(MADE), ())
    made = [] if obstacle else [MADE[name]() for name in tried if installed(name, *needed)]
    found = [backend for backend in made if network.precision in backend.precisions()]
    if found or file is None:
        return found
    if obstacle:
        raise BadInput(f"{file.name} is an ONNX file, and a backend for it {obstacle}")
    if not made:
        raise MissingExtra("onnxruntime or openvino", "openvino", f"running {file.name}")
    raise BadInput(f"no backend here computes {file.name} in {network.precision}: use --precision fp32")


def _obstacle(network: Network, compile: bool) -> str:
    """Why no backend can run this network; empty if one may."""
    if network.device.type != "cpu":
        return f"runs on the CPU, and the device is {network.device.type}: give device='cpu' (--device cpu)"
    if network.stochastic is not None:
        return (
            f"with stochastic={network.stochastic!r}: a random model draws from torch's generators; use backend torch"
        )
    if compile:
        return "with compile: torch.compile is of torch alone; leave out --compile and --tune, or use backend torch"
    if not isinstance(network.source, nn.Module):
        return "needs a torch module or an ONNX file, and the model is another callable: use backend torch"
    return ""


def _kept(network: Network, backends: Sequence[Backend], optional: bool) -> Runner:
    """The network's runner if it has one for these weights, which has compiled programs; else a new one."""
    from vauban.engine.fingerprint import model_fingerprint

    source, before = network.source, network.runner
    assert isinstance(source, nn.Module)
    key = source.sha256 if isinstance(source, OnnxNetwork) else model_fingerprint(source, "")
    names = [backend.name for backend in backends]
    if isinstance(before, Runner) and before.key == key and before.backend.name in names:
        return before
    return Runner(backends[0], source, network.precision, key, optional, list(backends[1:]))


def computes_bf16() -> bool:
    """Whether this processor has instructions for bf16, without which it is slower than fp32; True where torch cannot tell."""
    capable = processor()
    return not capable or any(capable.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def _warn_of_slow_bf16(network: Network) -> None:
    """Warn if torch is to compute in bf16 on a processor that has no instructions for it."""
    if network.precision == "bf16" and network.device.type == "cpu" and not computes_bf16():
        warnings.warn(
            "this processor has no instructions for bf16 (avx512_bf16 or amx_bf16): votes in bf16 are slower than in fp32",
            stacklevel=3,
        )
