"""Model files: a network's tensors as safetensors, with the spec that rebuilds it in the header."""

from __future__ import annotations

import copy
import hashlib
import json
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from vauban.engine.adapters.wrapping import classes_of
from vauban.engine.failed_calls import reason
from vauban.engine.network import BaseClassifier
from vauban.errors import BadInput, ModelFailed, VaubanError
from vauban.files import replace_file
from vauban.laws.law import AnyLaw
from vauban.models.building import assembled, build, build_bare, source_digest
from vauban.models.composition import Composed, composed
from vauban.models.composition import Denoised as DenoisedText
from vauban.models.denoised import Denoised
from vauban.models.ensembles import Ensemble
from vauban.models.normalise import without_normalisation
from vauban.models.registry import canonical, checked, imported
from vauban.models.weights import PICKLED, SAFE, fit, read_header, read_weights
from vauban.smoothing.trained_views import warn_of_other_views
from vauban.specs import Spec
from vauban.standardise import METADATA as STANDARDISED

SPEC_KEY = "vauban_model"
TRAINED_SMOOTHING = "trained_smoothing"  # in a file's metadata: the views that the model was trained on
WITHOUT_LABELS = (
    "learned_without_labels"  # in a file's metadata: neither these weights nor those they began with saw a label
)
FOREIGN = (".onnx", ".skops", ".pkl", ".pickle", ".joblib", ".h5", ".keras", ".tflite", ".pb")
"""Endings of model files that other libraries write."""


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

    def warn_if_trained_for_other_views(self, law: AnyLaw) -> None:
        if WITHOUT_LABELS in self.metadata:
            warnings.warn(
                "the model holds features that were learned without labels, and its last layer is zeros: every view votes for "
                "class 0. Train it with labels first (vauban train --init FILE)",
                stacklevel=3,
            )
        warn_of_other_views(self.metadata.get(TRAINED_SMOOTHING), law, stacklevel=3)


def load(
    model: str | Path,
    weights: str | Path | None = None,
    device: str | torch.device = "cpu",
    *,
    allow_random: bool = False,
) -> LoadedModel:
    """Return the model of a `.safetensors` file that `save` wrote, or of a spec with a weight file.

    A spec of Vauban's own without weights is refused unless `allow_random` (then its weights are those of seed 0);
    `package.module:callable` needs no file, since the callable may load its own weights. `A + B` is the ensemble of the models A
    and B, `D > A` the denoiser D in front of the classifier A; each part is a file or a spec, and `weights` a file that `save`
    wrote for the whole, or where one of D and A is a file the weights of the other. `net.onnx` is an ONNX file, which a backend
    runs (`SmoothedClassifier(backend=…)`, docs/backends.md); `pipeline.skops` a classifier of scikit-learn (docs/own-model.md).
    """
    text = str(model)
    if any(suffix in text for suffix in FOREIGN):
        from vauban.models.foreign_files import load_foreign

        found = load_foreign(text, weights)
        if found is not None:
            return found
    source = text if _is_file(text) else weights
    if text == source and weights is not None:
        raise BadInput(
            f"the model is the file {text} and the weights are {weights}; give one file, or a spec and a file"
        )
    whole = composed(text) if text != source else None
    if whole and (weights is None or _one_lacks_weights(whole)):
        given = [None if _is_file(part) else weights for part in whole.parts]
        loaded = [load(part, w, device, allow_random=allow_random) for part, w in zip(whole.parts, given, strict=True)]
        return compose(whole, loaded)
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
    module, drew = _constructed(spec, 0)
    if source is not None:
        fill(module, tensors, str(source))
    elif foreign and drew and not allow_random:
        _warn_if_random(spec, module)
    module = _place(module, device)
    code = source_digest(foreign, module) if foreign else ""
    classes, channels = sides(spec)
    stated = classes_of(module) if foreign and classes is None else classes
    return LoadedModel(module, spec, fingerprint(spec + code, module), stated, channels, metadata, code)


def _constructed(spec: str, seed: int) -> tuple[nn.Module, bool]:
    """The model of a text, built with this seed, and whether that drew random numbers from torch's generator."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        before = torch.get_rng_state()
        module = construct(spec)
        return module, not torch.equal(before, torch.get_rng_state())


def _warn_if_random(spec: str, module: nn.Module) -> None:
    """Warn of a function's model whose weights depend on torch's seed, by building it once more with another one."""
    try:
        again, _ = _constructed(spec, 1)
    except VaubanError:
        return
    if fingerprint("", again) != fingerprint("", module):
        warnings.warn(
            f"{spec} returned a model with random weights (another seed of torch gives others), and no file of weights is given: "
            "give --weights FILE (in Python weights=FILE), or let the function load them",
            stacklevel=3,
        )


@dataclass(frozen=True, eq=False)
class FileModel(LoadedModel):
    """The model of a file that another library wrote; its fingerprint is the file's hash."""

    def current_fingerprint(self) -> str:
        return str(self.fingerprint)


def compose(whole: Composed, parts: Sequence[LoadedModel]) -> LoadedModel:
    """Return loaded models as one, with one text and one fingerprint."""
    if any(isinstance(part, FileModel) for part in parts):
        raise BadInput(
            f"{whole} has a file of another library among its parts, and torch joins models: join them before the export"
        )
    spec = str(checked(replace(whole, parts=tuple(str(part.spec) for part in parts))))
    module = assembled(whole, _apart([part.module for part in parts])).eval().requires_grad_(False)
    code = "".join(part.code for part in parts)
    metadata = _shared_metadata(whole, parts)
    return LoadedModel(module, spec, fingerprint(spec + code, module), *sides(spec), metadata, code)


def _shared_metadata(whole: Composed, parts: Sequence[LoadedModel]) -> dict[str, str]:
    """What the members of an ensemble were all trained on: the views, and how features were scaled. Members whose file says
    nothing of their training are left out. Features that were scaled differently are refused: all members are shown the same.
    """
    said = [part.metadata for part in parts if part.metadata]
    if isinstance(whole, DenoisedText) or not said:
        return {}
    if any(one.get(STANDARDISED) != said[0].get(STANDARDISED) for one in said):
        raise BadInput(
            f"{whole} joins models whose features were scaled in different ways in training, and all members are shown the same "
            "views: train them with --standardise on the same data, or all without"
        )
    kept = (TRAINED_SMOOTHING, STANDARDISED)
    return {key: said[0][key] for key in kept if key in said[0] and all(one.get(key) == said[0][key] for one in said)}


def _apart(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """The modules, copied where an earlier one has the same tensors: each part has its own, as when it is read from a file."""
    found: list[nn.Module] = []
    for module in modules:
        known = {id(tensor) for earlier in found for tensor in earlier.parameters()}
        found.append(copy.deepcopy(module) if any(id(t) in known for t in module.parameters()) else module)
    return found


def sides(spec: str) -> tuple[int | None, int | None]:
    """The number of classes and of channels of the model of a canonical text, None where it does not say; parts must agree."""
    if (whole := composed(spec)) is None:
        foreign = imported(spec)
        params = foreign.params if foreign else Spec.parse(spec).params
        return _number(params, "classes"), _number(params, "channels")
    both = [sides(part) for part in whole.parts]
    return one_of("classes", [classes for classes, _ in both], spec), one_of("channels", [c for _, c in both], spec)


def one_of(what: str, numbers: Iterable[int | None], spec: str) -> int | None:
    """Return the number on which all agree that know it."""
    known = {number for number in numbers if number is not None}
    if len(known) > 1:
        raise BadInput(f"{spec} joins models of {' and '.join(map(str, sorted(known)))} {what}: all must have the same")
    return known.pop() if known else None


def fill(module: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Load a file's tensors into a network or a composed model of Vauban's, behind its normalisation if it has one."""
    if isinstance(module, Ensemble | Denoised):
        parts = module.parts
        for (name, part), some in zip(parts.items(), _split(tensors, list(parts), source), strict=True):
            fill(part, some, f"{source} ({name[:-1]})")
    else:
        net = without_normalisation(module)
        net.load_state_dict(fit(tensors, net.state_dict(), source))


def construct(spec: str, seed: int | None = None) -> nn.Module:
    """As `build`; what a function of the user's raises, or its module on import, is a `ModelFailed`."""
    try:
        return build(spec, seed=seed)
    except VaubanError:
        raise
    except (Exception, SystemExit) as problem:
        raise ModelFailed(
            f"{spec} failed when the model was built: {reason(problem)}. A function that returns the model is needed"
        ) from problem


def save(path: str | Path, module: nn.Module, spec: str | Spec, metadata: Mapping[str, str]) -> None:
    """Write the module's tensors and spec to `path` atomically; `load(path)` returns the same model.

    A model of your own code is written with its name, but `load(path)` never imports it: see `how_to_load`. A composed model is
    one file if all its parts are Vauban's own networks.
    """
    target = Path(path).expanduser()
    if target.suffix != SAFE:
        raise BadInput(f"{path} does not end in {SAFE}; models are saved as safetensors, so give a name that does")
    if SPEC_KEY in metadata or not all(isinstance(v, str) for pair in metadata.items() for v in pair):
        raise BadInput(f"metadata must map text to text and leave {SPEC_KEY!r} to save; given {dict(metadata)}")
    name = canonical(spec)
    state = _state(name, {key: tensor.detach() for key, tensor in module.state_dict().items()})
    if not state:
        raise BadInput(f"{name} has no tensors to save")
    copies = {key: tensor.to("cpu", copy=True).contiguous() for key, tensor in state.items()}
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, _ordered(safetensors.torch.save(copies, {SPEC_KEY: name, **metadata})))


def _state(spec: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a module's tensors under the names that they have in a file, those of public weights."""
    if whole := composed(spec):
        if names_code(spec):
            raise BadInput(f"{spec} holds other people's code, which one file cannot hold with others: save each part")
        split = _split(state, whole.names, f"the module to save as {spec}")
        return {
            name + key: tensor
            for part, some, name in zip(whole.parts, split, whole.names, strict=True)
            for key, tensor in _state(part, some).items()
        }
    if imported(spec):
        return dict(state)
    with torch.device("meta"):
        expected = build_bare(spec).state_dict()
    return fit(state, expected, f"the module to save as {spec}")


def _split(tensors: Mapping[str, Tensor], names: Sequence[str], source: str) -> list[dict[str, Tensor]]:
    """Return the tensors of each part, whose names begin with the part's; wrappers' prefixes before it are dropped."""
    found: list[dict[str, Tensor]] = [{} for _ in names]
    for key, tensor in tensors.items():
        places = [(f".{key}".find(f".{name}"), i) for i, name in enumerate(names) if f".{name}" in f".{key}"]
        if not places:
            raise BadInput(f"{source} does not fit the model: {key} belongs to none of {', '.join(names)}")
        at, part = min(places)
        found[part][key[at + len(names[part]) :]] = tensor
    return found


def read_metadata(path: str | Path) -> dict[str, str]:
    """Return the metadata of a model file, without its spec, and without building the network."""
    metadata = read_header(Path(path).expanduser())
    metadata.pop(SPEC_KEY, None)
    return metadata


def how_to_load(path: str | Path) -> str:
    """Return the options by which a command takes a model file: the file, or the code it belongs to with the file as weights.

    A file never chooses code to run: what it belongs to is shown to a person, who gives it as --model or does not.
    """
    spec = read_header(Path(path).expanduser()).get(SPEC_KEY)
    if spec is None:
        return f"--model ARCHITECTURE --weights {shlex.quote(str(path))}"
    if names_code(spec):
        return f"--model {shlex.quote(spec)} --weights {shlex.quote(str(path))}"
    return f"--model {shlex.quote(str(path))}"


def names_code(spec: str) -> bool:
    """Whether a model's text names other people's code."""
    whole = composed(spec)
    return any(map(names_code, whole.parts)) if whole else imported(spec) is not None


def fingerprint(spec: str, module: nn.Module) -> str:
    """Return the sha256, in hex, of the spec and of every parameter and buffer: name, dtype, shape and bytes."""
    digest = hashlib.sha256(f"{spec}\n".encode())
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, tensor in sorted(named.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _one_lacks_weights(whole: Composed) -> bool:
    """Whether one of a denoiser and its classifier is a file, and the other is not."""
    return isinstance(whole, DenoisedText) and sum(map(_is_file, whole.parts)) == 1


def _is_file(text: str) -> bool:
    path = Path(text).expanduser()
    named = path.suffix in (SAFE, *PICKLED)
    return named and (path.is_file() or (":" not in text and composed(text) is None))


def _trusted(spec: str | None, path: str) -> str:
    """Return the spec in a file's header if it is one of Vauban's networks: no file may choose code to import."""
    if spec is None:
        raise BadInput(f"{path} does not say which network it belongs to; give the spec as model and {path} as weights")
    if names_code(spec):
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
