"""Model files: a network's tensors as safetensors, with the spec that rebuilds it in the header."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch
import torch
from torch import nn

from vauban.engine.network import BaseClassifier
from vauban.errors import BadInput
from vauban.files import replace_file
from vauban.models.building import build_bare, build_imported, normalise_as, source_digest
from vauban.models.registry import canonical, imported
from vauban.models.weights import PICKLED, SAFE, fit, read_weights
from vauban.specs import Spec

SPEC_KEY = "vauban_model"


@dataclass(frozen=True, eq=False)
class LoadedModel(BaseClassifier):
    """A network ready to vote: in eval mode, without gradients, on its device.

    spec: its canonical text; fingerprint: sha256 of spec and tensors; metadata: of its file, without the spec;
    num_classes, channels: None where the spec does not say.
    """

    module: nn.Module
    metadata: dict[str, str] = field(default_factory=dict)
    code: str = ""

    def current_fingerprint(self) -> str:
        return fingerprint(f"{self.spec}{self.code}", self.module)


def load(
    model: str | Path,
    weights: str | Path | None = None,
    device: str | torch.device = "cpu",
    *,
    allow_random: bool = False,
) -> LoadedModel:
    """Return the model of a `.safetensors` file that `save` wrote, or of a spec with a weight file.

    A spec of Vauban's own without weights is refused unless `allow_random` (then its weights are those of seed 0);
    `package.module:callable` needs no file, since the callable may load its own weights.
    """
    text = str(model)
    source = text if _is_file(text) else weights
    if text == source and weights is not None:
        raise BadInput(
            f"the model is the file {text} and the weights are {weights}; give one file, or a spec and a file"
        )
    tensors, metadata = read_weights(Path(source).expanduser()) if source is not None else ({}, {})
    saved_as = metadata.pop(SPEC_KEY, None)
    spec = canonical(_trusted(saved_as, text) if text == source else text)
    foreign = imported(spec)
    if source is None and not foreign and not allow_random:
        raise BadInput(
            f"{text} has no weights; give a file of weights (--weights FILE; in Python weights=FILE, or allow_random=True)"
        )
    if saved_as is not None and not foreign and canonical(saved_as) != spec:
        raise BadInput(f"{source} was saved as {saved_as}, not as {spec}; give only the file, or the same spec")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        net = build_imported(foreign) if foreign else build_bare(spec)
    if source is not None:
        net.load_state_dict(fit(tensors, net.state_dict(), str(source)))
    module = _place(net if foreign else normalise_as(spec, net), device)
    params = foreign.params if foreign else Spec.parse(spec).params
    classes, channels = _number(params, "classes"), _number(params, "channels")
    code = source_digest(foreign) if foreign else ""
    return LoadedModel(module, spec, fingerprint(spec + code, module), classes, channels, metadata, code)


def save(path: str | Path, module: nn.Module, spec: str | Spec, metadata: Mapping[str, str]) -> None:
    """Write the module's tensors and spec to `path` atomically; `load(path)` returns the same model."""
    target = Path(path).expanduser()
    if target.suffix != SAFE:
        raise BadInput(f"{path} does not end in {SAFE}; models are saved as safetensors, so give a name that does")
    if SPEC_KEY in metadata or not all(isinstance(v, str) for pair in metadata.items() for v in pair):
        raise BadInput(f"metadata must map text to text and leave {SPEC_KEY!r} to save; given {dict(metadata)}")
    name = canonical(spec)
    state = {key: tensor.detach() for key, tensor in module.state_dict().items()}
    if imported(name) is None:
        with torch.device("meta"):
            expected = build_bare(name).state_dict()
        state = fit(state, expected, f"the module to save as {name}")
    if not state:
        raise BadInput(f"{name} has no tensors to save")
    copies = {key: tensor.to("cpu", copy=True).contiguous() for key, tensor in state.items()}
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, _ordered(safetensors.torch.save(copies, {SPEC_KEY: name, **metadata})))


def fingerprint(spec: str, module: nn.Module) -> str:
    """Return the sha256, in hex, of the spec and of every parameter and buffer: name, dtype, shape and bytes."""
    digest = hashlib.sha256(f"{spec}\n".encode())
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, tensor in sorted(named.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _is_file(text: str) -> bool:
    path = Path(text).expanduser()
    return path.suffix in (SAFE, *PICKLED) and (":" not in text or path.is_file())


def _trusted(spec: str | None, path: str) -> str:
    """Return the spec in a file's header if it is one of Vauban's networks: no file may choose code to import."""
    if spec is None:
        raise BadInput(f"{path} does not say which network it belongs to; give the spec as model and {path} as weights")
    if imported(spec) is not None:
        raise BadInput(
            f"{path} asks to import {spec}, and no file may choose code to run; if you trust that code, give {spec} "
            f"as model and {path} as weights"
        )
    return spec


def _place(module: nn.Module, device: str | torch.device) -> nn.Module:
    try:
        return module.to(device).eval().requires_grad_(False)
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).partition("\n")[0]
        raise BadInput(f"device={device} cannot be used here ({reason}); device=cpu always can") from None


def _number(params: Mapping[str, str], key: str) -> int | None:
    text = params.get(key, "")
    return int(text) if text.isdecimal() else None


def _ordered(content: bytes) -> bytes:
    """Return a safetensors file with the keys of its header sorted, so that equal models are equal files."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[end:]
