"""The steps of an entry: which weights are trained and which runs are certified, and how each is done."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vauban.errors import BadInput, Incomplete, RunRefused, VaubanError
from vauban.files import in_turn, read_json, sha256
from vauban.interrupts import sigterm_as_interrupt
from vauban.reproduce.entry import Entry
from vauban.reproduce.inputs import check_inputs, chosen_inputs, filled_in
from vauban.reproduce.naming import file_name
from vauban.specs import JOINT

if TYPE_CHECKING:
    from vauban.data import Dataset
    from vauban.training import Recipe

RUNS, WEIGHTS, USED, PREPARED = "runs", "weights", "used.json", "prepared"
ABOUT, RECIPES = "entry.json", "recipes"
BEGIN = "begin"
"""The part of a training that other trainings start from; it certifies nothing."""
SETTINGS = ("k", "n", "n0", "alpha", "bounds", "label", "stop", "keep")
_TAKE_A_DEVICE = ("train", "certify", "attack", "poison", "rl")


@dataclass(frozen=True)
class Step:
    """One run of an entry: a point of its grid, a seed of training, and which part of the data it certifies."""

    entry: Entry
    out: Path
    point: Mapping[str, Any]
    seed: int = 0
    part: str = "test"

    @property
    def name(self) -> str:
        """Its folder's name: the values of the grid's axes, the seed where it is not 0."""
        said = [f"{axis}-{value}" for axis, value in self.point.items()] or ["run"]
        said += [f"seed-{self.seed}"] if self.seed else []
        said += [self.part] if self.part != "test" else []
        return file_name(said)

    @property
    def used(self) -> Path | None:
        """The run folder that was made elsewhere and is used for it, if there is one."""
        file = self.out / USED
        said = read_json(file).get(self.name) if file.exists() else None
        return None if said is None else self.out / said

    @property
    def shared(self) -> Path:
        """Where its run lies if the entry whose votes it takes was made beside this one."""
        return self.out.resolve().parent / self.entry.votes_of / RUNS / self.name

    @property
    def takes_shared(self) -> bool:
        """Whether it has its votes from there."""
        return bool(self.entry.votes_of) and self.used is not None and self.used.resolve() == self.shared

    @property
    def run(self) -> Path:
        """Its run folder."""
        return self.used or self.out / RUNS / self.name

    @property
    def sealed(self) -> bool:
        """Whether its run is finished; weights are not needed any more then."""
        from vauban.runs.store import SEAL

        return (self.run / SEAL).exists()

    @property
    def smoothing(self) -> str:
        """The views that vote."""
        return self.entry.smoothing.format(**self.point)

    @property
    def trained_smoothing(self) -> str:
        """The views that the network is trained on; those that vote, unless the entry names others. With `together`, those of all
        these values of its axes."""
        text = str(self.entry.train.get("smoothing", self.entry.smoothing))
        together = self.entry.together
        every = (dict(zip(together, some, strict=True)) for some in product(*together.values()))
        return JOINT.join(dict.fromkeys(text.format(**{**self.point, **values}) for values in every))

    @property
    def weights(self) -> Path:
        """The file of its weights; points that are trained alike share one."""
        views = self.trained_smoothing
        several = views.split(JOINT)
        shown = views if len(several) == 1 else f"{several[0]} and {len(several) - 1} more {_short(views)}"
        text = re.sub(r"[^A-Za-z0-9.,=-]+", "_", shown)
        model = re.sub(r"[^A-Za-z0-9.-]+", "_", str(self.entry.train.get("model", "")).format(**self.point))
        own = [] if self.settings == self.entry.train.get("settings", {}) else [_short(self.settings)]
        name = "-".join([text, *([model] if model else []), *own, *([f"seed{self.seed}"] if self.seed else [])])
        return self.out / WEIGHTS / f"{'begin-' if self.part == BEGIN else ''}{name}.safetensors"

    @property
    def first(self) -> Step | None:
        """The training whose weights it starts from, if the entry has one: `[train.begin]`, the rest as in `[train]`."""
        if "begin" not in self.entry.train:
            return None
        own = {key: value for key, value in self.entry.train.items() if key not in ("begin", "settings")}
        return replace(self, entry=replace(self.entry, train={**own, **self.entry.train["begin"]}), part=BEGIN)

    @property
    def settings(self) -> dict[str, Any]:
        """The entry's fields of the recipe, axes of the grid filled in where they are texts."""
        given = dict(self.entry.train.get("settings", {}))
        return {key: value.format(**self.point) if isinstance(value, str) else value for key, value in given.items()}

    @property
    def commands(self) -> list[list[str]]:
        """The commands of an entry that is made by commands, as words; {out}, {run} and the axes of the grid are filled in."""
        return self.commands_in(str(self.out), str(self.run))

    @property
    def preparing(self) -> list[list[str]]:
        """The commands before these that all points of the grid share."""
        return _filled(self.entry.prepare, {"out": str(self.out)})

    def commands_in(self, out: str, run: str) -> list[list[str]]:
        """The same commands in another folder, with another run folder."""
        return _filled(self.entry.commands, {"out": out, "run": run, "seed": str(self.seed), **self.point})


def _filled(texts: Sequence[str], values: Mapping[str, Any]) -> list[list[str]]:
    """Commands as words, with these values in place of their names in braces."""
    return [[word.format(**values) for word in shlex.split(text)] for text in texts]


def _short(settings: Mapping[str, Any] | str) -> str:
    """A few letters that tell settings, or texts, apart."""
    return sha256(json.dumps(settings, sort_keys=True).encode())[:8]


def recipe_of(step: Step, printed: bool) -> tuple[Recipe, str]:
    """The recipe by which a step is trained, and its model; empty where neither the entry nor its recipe names one."""
    from vauban.training import Recipe
    from vauban.training.recipes import named

    given = step.entry.train
    name = given.get("printed" if printed else "recipe") or given.get("recipe") or given.get("printed")
    data = str(given.get("data", step.entry.data))
    chosen = named(name, smoothing=step.trained_smoothing, data=data) if name else None
    if chosen is not None and chosen.missing:
        raise BadInput(f"the recipe {chosen.name} cannot be run: train lacks {chosen.missing}")
    recipe = Recipe.from_options(chosen.recipe if chosen else Recipe(), {"seed": step.seed, **step.settings})
    return recipe, str(given.get("model") or (chosen.model if chosen else "")).format(**step.point)


def training_inputs(step: Step, printed: bool) -> tuple[Dataset, int]:
    """The inputs that a step is trained on, and how many of them choose the weights instead."""
    from vauban.data import load_some
    from vauban.data.registry import with_split
    from vauban.training.validation import without_every

    given = step.entry.train
    spec = with_split(str(given.get("data", step.entry.data)), "train")
    inputs = load_some(spec, given.get("every", 1), given.get("limit"), stream=True)
    if given.get("hold_out") and not printed:
        inputs = without_every(inputs, given["hold_out"])
    return inputs, int(given.get("validate", 0))


def train(step: Step, device: str, printed: bool, callback: Any = None) -> bool:
    """Train the weights of a step unless they are there, from those of its `first` if it has one; whether anything was done."""
    from torch import Size

    from vauban.models import canonical, fitting_views
    from vauban.smoothing.several import read
    from vauban.training import Validation, split
    from vauban.training import train as run

    if step.weights.exists():
        return False
    smoothing = read(step.trained_smoothing)
    recipe, model = recipe_of(step, printed)
    pictures, held = training_inputs(step, printed)
    if not model:
        raise BadInput(f"{step.entry.name}: [train] names neither a model nor a recipe: give one of them")
    shape = smoothing.view_shape(Size(pictures.images.shape[1:]))
    validation = None
    if held:
        pictures, out = split(pictures, held, recipe.seed)
        validation = Validation(out.held())
    step.weights.parent.mkdir(parents=True, exist_ok=True)
    trained = run(
        canonical(fitting_views(model, shape, pictures.num_classes)), pictures, smoothing, recipe,
        out=step.weights, validation=validation, device=device, callbacks=[] if callback is None else [callback],
        init=step.first.weights if step.first else None,
    )  # fmt: skip
    if not trained.finished:
        raise Incomplete(f"training {step.weights.name} was stopped; the same command goes on")
    return True


def certify(step: Step, device: str, progress: bool) -> bool:
    """Certify the inputs of a step into its run folder; whether anything was done. An interrupted run is resumed."""
    from vauban.models import load as load_model
    from vauban.smoothed import SmoothedClassifier
    from vauban.smoothing import build

    refuse_missing_looks(step, step.run)
    if step.sealed:
        return False
    given = step.entry.certify
    inputs = chosen_inputs(str(given.get("data", step.entry.data)), inputs_of(step))
    base = load_model(step.weights, None, device)
    options = {key: given[key] for key in ("precision", "rows") if key in given}
    if given.get("compile") and device.startswith("cuda"):
        options["compile"] = True
    smoothed = SmoothedClassifier(base, build(step.smoothing), num_classes=inputs.num_classes, device=device, **options)
    settings = {key: given[key] for key in SETTINGS if key in given} | _kept_by(step.run)
    smoothed.certify(inputs, out=step.run, progress=progress, **settings)
    return True


def refuse_missing_looks(step: Step, run: Path) -> None:
    """Refuse a run that kept counts at n alone where the entry claims something at a smaller n."""
    from vauban.runs import manifest

    settings = manifest.read(run).settings if manifest.has_manifest(run) else None
    if settings is None or settings.keep != "last":
        return
    others = sorted(step.entry.claimed_votes() - {settings.n})
    if others:
        raise RunRefused(
            f"{run} kept counts at {settings.n:,} votes alone (keep=last), and {step.entry.name} claims something at "
            f"{others[0]:,}: remove that folder to make it anew"
        )


def _kept_by(run: Path) -> dict[str, Any]:
    """The setting `keep` of a run that has begun, which goes on with it whatever the entry says by now."""
    from vauban.runs import manifest

    return {"keep": manifest.read(run).settings.keep} if manifest.has_manifest(run) else {}


def inputs_of(step: Step) -> str:
    inputs = step.entry.choose["inputs"] if step.part == "validation" else step.entry.certify.get("inputs", "")
    return filled_in(str(inputs), step.point)


def refuse_bad_settings(entry: Entry) -> None:
    """Refuse, before anything is trained, settings of [certify] with which nothing can be certified."""
    from vauban.data import load_some
    from vauban.data.registry import with_split
    from vauban.methods import CertifySettings, method_for
    from vauban.smoothing import build

    if entry.kind != "runs":
        return
    spec = str(entry.certify.get("data", entry.data))
    for text in {inputs_of(Step(entry, Path(), point)): None for point in entry.points()}:
        check_inputs(spec, text)
    some = load_some(with_split(spec, "test"), 1, 1)
    asked = {key: entry.certify[key] for key in SETTINGS if key in entry.certify}
    for step in (Step(entry, Path(), point) for point in entry.points()):
        law = build(step.smoothing).law
        method_for(CertifySettings.of(law, some.num_classes, **asked), law, some.num_classes, some.images.shape[1:])


def run_commands(step: Step, device: str, quiet: bool = False) -> bool:
    """Run the commands of a step, one after the other, unless its result is there; each continues where it was stopped.

    `quiet`: their tables are not printed, which are no JSON; errors are.
    """
    done = step.out / "done" / step.name
    if done.exists() or step.used:
        return False
    done.parent.mkdir(parents=True, exist_ok=True)
    _prepare(step, device, quiet)
    for words in step.commands:
        _run_unless_trained(with_device(words, device), quiet)
    _write_done(done, step.commands_in("FOLDER", f"FOLDER/{RUNS}/{step.name}"))
    return True


def _prepare(step: Step, device: str, quiet: bool) -> None:
    """Run the commands that all points of the grid share, the first time; other processes wait for them."""
    done = step.out / "done" / PREPARED
    if not step.entry.prepare:
        return
    with in_turn(done):
        if done.exists():
            return
        for words in step.preparing:
            _run_unless_trained(with_device(words, device), quiet)
        _write_done(done, _filled(step.entry.prepare, {"out": "FOLDER"}))


def _write_done(file: Path, commands: list[list[str]]) -> None:
    """Keep which commands are done; they name no folder of this machine, since theirs may be moved, or published."""
    file.write_text("".join(shlex.join(words) + "\n" for words in commands), encoding="utf-8")


def with_device(words: list[str], device: str) -> list[str]:
    """A command with the device on which it computes, where it takes one."""
    takes = words[1:2] and words[1] in _TAKE_A_DEVICE and "--device" not in words and "plot" not in words
    return [*words, *(["--device", device] if takes else [])]


def _run_unless_trained(words: list[str], quiet: bool) -> None:
    """Run one command; a training whose weights are there has ended, and would not replace them."""
    from vauban.training.checkpoints import Files

    out = next((after for word, after in pairwise(words) if word in ("--out", "-o")), None)
    if words[:2] != ["vauban", "train"] or out is None or not Files(Path(out)).finished:
        _run_command(words, quiet)


def _run_command(words: list[str], quiet: bool) -> None:
    """Run one command of Vauban; when this process is interrupted, so is the command, which keeps what it has done."""
    if words[0] != "vauban":
        raise BadInput(f"the command {shlex.join(words)!r} is none of Vauban: an entry calls vauban …")
    out = subprocess.DEVNULL if quiet else None
    with sigterm_as_interrupt():
        started = subprocess.Popen([sys.executable, "-m", "vauban", *words[1:]], stdout=out, start_new_session=True)
        try:
            code = started.wait()
        except KeyboardInterrupt:
            started.send_signal(signal.SIGINT)
            started.wait()
            raise
    if code != 0:
        raise VaubanError(f"{shlex.join(words)} ended with exit code {code}: what it printed above says why")
