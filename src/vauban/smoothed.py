"""SmoothedClassifier: predicts and certifies with a base classifier and a smoothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from vauban import __version__, validation
from vauban.certificates import UNIT_RANGE, Certificates
from vauban.columns import COLUMNS, check_columns
from vauban.engine.adapters.wrapping import described
from vauban.engine.compiled import TUNED
from vauban.engine.enumerator import Enumerator, make_enumerator
from vauban.engine.network import BaseClassifier, Model, Network, threads
from vauban.engine.sampler import Sampler, make_sampler
from vauban.engine.scheduler import Executor, VotingJob, current, executor
from vauban.errors import BadInput, RowsDiffer, RunRefused, VaubanError
from vauban.files import files_sha256
from vauban.inputs import Batch, Inputs, collect, prepare
from vauban.laws.exact import Ballots
from vauban.laws.law import Law
from vauban.methods import CertifySettings, ExactMethod, Method, method_for
from vauban.prediction import Predictions, predict_method, predictions
from vauban.runs import manifest as manifests
from vauban.runs.manifest import Manifest
from vauban.runs.memory_store import MemoryStore
from vauban.runs.sections import ModelSection
from vauban.runs.store import FolderStore
from vauban.seed import Seed, SeedRequest
from vauban.smoothing import SMOOTHINGS, Smoothing
from vauban.smoothing.several import one_alone
from vauban.standardise import Standardisation
from vauban.stopping.policies import Policy
from vauban.surrogate import AsModule

_SAMPLERS: dict[str, Callable[..., Any]] = {"exact": make_enumerator}
_FEWER = (100, 50, 25)  # rows that are tried where scores depend on the row; they divide every look


class SmoothedClassifier(AsModule):
    """Classifier whose answer is the class that most views vote for; every certificate is about it, not about the model.

    `model`: any callable from a batch of views, float32 [rows, ...], to scores [rows, num_classes] that judges each view by
    itself, whatever else is in the batch; a module votes in evaluation mode and is left as it was. Objects with `logits`, tuples,
    and fitted classifiers of scikit-learn are understood (`vauban.wrap` for the rest). The result of `vauban.models.load` works
    too, and knows its number of classes. `smoothing`: an object or its text. `rows`: the compute shape, the number of views in a
    forward pass; `in_flight`: how many such shapes are made before they vote; None chooses both by size (and a GPU's free
    memory), and fewer rows where scores depend on the row. `block`: how many consecutive views of one input are together in a
    shape; None is the whole shape for a fixed number of votes and about 100 otherwise. `arithmetic`: "auto", "grid" or "float"
    (see `inputs.prepare`). `input_range`: allowed input values, None for no limit. `channels_last`: the memory layout; None takes
    the faster one. `precision` of the network: "fp32", "tf32", "bf16" or "fp16"; views are made in float32 and cast, a module is
    copied and cast; a claim in one precision does not hold in another. `compile`: use torch.compile; "tuned" also times kernels
    for every convolution (a minute or two on a GPU). If it fails, a warning is given and votes are cast without. `stochastic`:
    for a model that is random by design, "views" calls it with one view at a time, "rows" with many whose votes are independent.
    `depends`: files that the model reads, whose hashes a run keeps. `backend`: what runs the network on the CPU, "torch" (the
    default), "onnxruntime", "openvino" or "auto" (docs/backends.md); a resumed run keeps its own. `standardise`: statistics of
    training data by which features are scaled (docs/tables.md); radii are then in scaled units.

    >>> import torch, vauban as vb
    >>> above = lambda views: torch.stack([0.5 - views.mean(dim=1), views.mean(dim=1) - 0.5], dim=1)
    >>> smoothed = vb.SmoothedClassifier(above, vb.Gaussian(sigma=0.25), num_classes=2)
    >>> certs = smoothed.certify(torch.ones(1, 4), y=[1], n=1_000, seed=1)
    >>> certs.abstained.tolist(), bool(0 < certs.radius[0] < 1)
    ([False], True)
    """

    def __init__(
        self,
        model: Model | BaseClassifier,
        smoothing: Smoothing | str,
        *,
        num_classes: int | None = None,
        device: torch.device | str | None = None,
        rows: int | None = None,
        in_flight: int | None = None,
        arithmetic: str = "auto",
        input_range: tuple[float, float] | None = UNIT_RANGE,
        channels_last: bool | None = None,
        block: int | None = None,
        precision: str = "fp32",
        compile: bool | str = False,
        stochastic: str | None = None,
        depends: Sequence[str | Path] = (),
        backend: str | None = None,
        standardise: Standardisation | None = None,
    ):
        self.base = model if isinstance(model, BaseClassifier) else described(model)
        module = self.base.module
        self.smoothing = one_alone(smoothing)
        if compile not in (False, True, TUNED):
            raise BadInput(f"compile={compile!r}: True, False or {TUNED!r}")
        if num_classes is None and self.base.num_classes is None:
            raise BadInput("num_classes is needed: the model does not say how many classes it has")
        self.num_classes = validation.check_num_classes(self.base.num_classes if num_classes is None else num_classes)
        if self.base.num_classes not in (None, self.num_classes):
            raise BadInput(f"the model has {self.base.num_classes} classes; num_classes is {self.num_classes}")
        if isinstance(module, torch.nn.Module):
            device = device or next((p.device for p in module.parameters()), None)
        self.base.warn_if_trained_for_other_views(self.smoothing.law)
        where = torch.device(validation.check_device(device))
        self.network = Network(module, where, precision, channels_last, stochastic, backend)
        self.rows, self.block, self.in_flight = validation.check_compute_shape(rows, block, in_flight)
        self.compile = compile
        self.depends = files_sha256(depends)
        self.arithmetic, self.input_range = arithmetic, validation.check_input_range(input_range)
        self.standardise = standardise
        self._samplers: dict[Any, Sampler | Enumerator] = {}

    @property
    def device(self) -> torch.device:
        """The network's device."""
        return self.network.device

    def predict(
        self,
        x: Any,
        *,
        k: int = 1,
        n: int | None = None,
        alpha: float | None = None,
        seed: int | None = None,
        index: Any = None,
        on: str | Executor | None = None,
        progress: Any = True,
    ) -> Predictions:
        """The top k labels of each input of `x` [m, ...], or undecided. [Jia2020] PREDICT

        From n votes (1,000) each answer is wrong with probability at most alpha (0.001). Where the smoothing is exact every
        view votes and every answer is certain. `x`, `seed`, `index`, `on`, `progress`: as in `certify`.
        """
        batch, law = self.collect(x, None, index), self.smoothing.law
        deviation = self.deviation(batch.inputs)
        method = predict_method(law, self.num_classes, batch.shape, deviation, k=k, n=n, alpha=alpha, seed=seed)
        votes: Any = method.empty_votes(batch.index.tolist(), None)
        vote = executor(on, self.base.module)
        with self.ready(batch.inputs):
            sampler, _ = self.agreeing_sampler(batch.inputs, method)
            secret = None if law.exact else Seed.of(seed)
            for _, record, _ in vote(VotingJob(self, batch, method, sampler, secret, votes, progress, "predicting")):
                votes.add(record)
        return predictions(method, votes)

    def certify(
        self,
        x: Any,
        y: Any = None,
        *,
        k: int = 1,
        n: int | None = None,
        alpha: float | None = None,
        bounds: str | None = None,
        stop: str | Policy = "fixed",
        label: str | None = None,
        n0: int | None = None,
        seconds: float | None = None,
        seed: int | None = None,
        index: Any = None,
        out: str | Path | None = None,
        extend: int | None = None,
        on: str | Executor | None = None,
        progress: Any = True,
        order: Any = None,
        announce: bool = False,
        nonce_from: str | None = None,
        nonce: str | None = None,
        picture: Callable[[Certificates], bytes | None] | None = None,
        keep: str | None = None,
    ) -> Certificates:
        """How far each input of `x` [m, ...] may be changed while its label stays in the top k. [Jia2020] CERTIFY

        `x`: an array, a tensor, a torch Dataset or DataLoader of (x, y), or a data set of `vauban.data`. Labels `y` [m] are
        certified if given; else (or with label="votes", k = 1) `n0` uncounted votes (100) choose the labels. From n votes
        (100,000) each claim is wrong with probability at most alpha (0.001). `bounds`: "binocp" (default for k = 1), "simuem"
        (default above) or "half". Where the smoothing is exact every view votes, claims hold without probability, and none of
        these may be given; without `y` the label with the most votes is certified.

        `stop`: "fixed" casts all n votes. "target:radius=0.5" stops each input once that radius is certified or unlikely to be,
        "grid:step=0.25" once the next multiple of the step is unlikely to be, after n votes at the latest: the same confidence
        with far fewer votes, whose number differs by input. "anytime" continues for `seconds`, or until Ctrl-C. All three use
        only the label's count (BinoCP): above k = 1 a fixed n with "simuem" may certify more.

        `out`: a run folder, which is written, locked and sealed; an existing one is resumed, and Ctrl-C keeps what was counted.
        `extend`: cast 2, 4, 8, … times the n votes of a finished run; its certificates are then another claim. `on`:
        "ray:address=host:port" lets the workers of a Ray cluster vote; a function casts the votes itself. `index` [m]: the
        number of each input, which addresses its noise; its position unless given. `progress`: True shows a bar after two
        seconds, a function is called with `Progress`. `order`: positions in the order in which they are voted on; it changes
        no claim. `picture`: draws the certificates as a PNG, which the folder keeps and seals. `keep`: "counts" in place of
        ballots, where an exact law needs no order of views, a smaller folder; "last", for a fixed n: counts at n alone, a fifth
        of the size, and no claim at a smaller n. `announce`: write the manifest and cast no vote; the note of the result has the
        hash to publish. `nonce_from`: which value, not known yet, will be the `nonce` then (docs/seeds-and-replay.md).
        """
        batch, law = self.collect(x, y, index), self.smoothing.law
        chosen = label or ("votes" if n0 is not None or batch.labels is None else "given")
        asked_for: dict[str, Any] = {"k": k, "n": n, "alpha": alpha, "bounds": bounds, "stop": stop, "n0": n0}
        settings = CertifySettings.of(
            law, self.num_classes, label=chosen, seconds=seconds, seed=seed, keep=keep, **asked_for
        )
        validation.check_seed_request(seed, announce, nonce_from, nonce, out, str(law.spec) if law.exact else None)
        asked, method = SeedRequest(seed, nonce_from, nonce), self._method(settings, batch)
        if method.endless and out is None and seconds is None:
            raise BadInput("stop=anytime has no last vote: say how many seconds it may take, or use grid or target")
        if chosen == "given" and batch.labels is None:
            raise BadInput(f"{batch.spec} has no labels to certify: give y, or let votes choose them (label='votes')")
        if out is not None:
            self._check_text_form()
        vote = executor(on, self.base.module)
        with ExitStack() as stack:
            place = validation.path_of("out", out) if out is not None else None
            store: Any = stack.enter_context(MemoryStore() if place is None else FolderStore(place))
            there = None if store.manifest is None else store.manifest.compute
            stack.enter_context(threads(torch.get_num_threads() if there is None else there.threads))
            stack.enter_context(self.ready(batch.inputs, None if there is None else store.manifest.backend))
            secret = None if law.exact else store.seed(asked)
            if there is None:
                sampler, differ = self.agreeing_sampler(batch.inputs, method)
            else:
                sampler, differ = self.sampler(batch.inputs, method, there.rows, there.block), bool(there.rows_differ)
            method = self._method(settings, batch, differ)
            store.begin(self._manifest(batch, method, sampler, secret, differ), secret, extend, asked)
            if announce:
                return store.announcement()
            if there is not None and store.unsealed:
                from vauban.resumed import refuse_other_votes

                refuse_other_votes(store.record, sampler, batch, store.secret, store.extending, progress is not True)
            if extend is not None:
                store.extend()
            method, votes = store.record.method, store.record.votes
            job = VotingJob(self, batch, method, sampler, store.secret, votes, progress, "certifying", seconds, order)
            needed = bool(method.pending(votes))
            if needed and self._rows_differ(sampler, batch.inputs, method) != differ:
                raise RunRefused(f"{out}: scores depend on the row where they did not, or no longer: use another --out")
            try:
                for _, record, _ in vote(job):
                    store.keep(record)
            except KeyboardInterrupt:
                if not method.endless:
                    raise
            if needed:
                try:
                    self._rows_differ(sampler, batch.inputs, method, again=True)
                except VaubanError:
                    store.discard()
                    raise
            return store.finish(picture)

    def ballots(self, x: Any, progress: Any = False) -> Ballots:
        """The vote of every view of each input; the smoothing must be exact."""
        batch, law = self.collect(x), self.smoothing.law
        method = method_for(CertifySettings(label="votes"), law, self.num_classes, batch.shape)
        if not isinstance(method, ExactMethod):
            raise BadInput(f"{law.spec} is sampled: ballots need an exact smoothing, where every view votes")
        votes = method.empty_votes(batch.index.tolist(), None)
        with self.ready(batch.inputs):
            sampler, _ = self.agreeing_sampler(batch.inputs, method)
            for _, piece, _ in VotingJob(self, batch, method, sampler, None, votes, progress, "voting").vote_here():
                votes.add(piece)  # type: ignore[arg-type]
        return votes.ballots(range(len(batch)))

    def plan(self, x: Any, **settings: Any) -> Any:
        """What `certify(x, …)` with these settings can prove, and what it costs here (see `vauban.planning.plan`)."""
        from vauban.planning import plan

        return plan(self, x, **settings)

    def collect(self, x: Any, y: Any = None, index: Any = None) -> Batch:
        """Read and check inputs, labels and numbers from any source that `certify` takes."""
        if hasattr(self.base.module, "check_names"):
            self.base.module.check_names(x)
        if COLUMNS in (metadata := getattr(self.base, "metadata", {})):
            check_columns(metadata, x)
        if (classes := getattr(x, "num_classes", 0)) and classes != self.num_classes:
            raise BadInput(f"the model has {self.num_classes} classes; {x.name} has {classes}")
        batch = collect(x, y, index, self.prepare, self.num_classes)
        if self.standardise is not None:
            self.standardise.refuse_own(batch.selection, batch.sha256, batch.spec)
        return batch

    def prepare(self, x: Any) -> Inputs:
        """Check inputs, put them on their grid if they are on one, and check that the network can take their views."""
        law = self.smoothing.law
        if law.exact and self.arithmetic == "float":
            raise BadInput(f"{law.spec} is exact, and exact claims are about 8-bit pictures: not arithmetic='float'")
        inputs = prepare(x, "grid" if law.exact else self.arithmetic, self.input_range, by=self.standardise)
        if type(self.smoothing).check is not Smoothing.check:
            inputs.check_with(self.smoothing.check)
        law.for_shape(inputs.values.shape[1:])
        views, channels = self.smoothing.view_shape(inputs.values.shape[1:]), self.base.channels
        if channels is not None and len(views) == 3 and views[0] != channels:
            raise BadInput(
                f"the model takes {channels} channels; views of these inputs under {law.spec} have {views[0]}: train one on "
                f"them, vauban train --smoothing {law.spec} --out model.safetensors"
            )
        return inputs

    def _method(self, settings: CertifySettings, batch: Batch, rows_differ: bool = False) -> Method:
        """The method behind settings, by a proof that needs no determinism where the base classifier has none."""
        law = self.smoothing.law
        proven = law if self.network.stochastic is None and not rows_differ else law.without_determinism()
        return method_for(settings, proven, self.num_classes, batch.shape, self.deviation(batch.inputs))

    def agreeing_sampler(self, inputs: Inputs, method: Method) -> tuple[Any, bool]:
        """The sampler, and whether scores depend on the row; with fewer rows where the method cannot have that."""
        sampler = self.sampler(inputs, method)
        fewer = iter(() if self.rows or self.block else (rows for rows in _FEWER if rows < sampler.rows))
        while True:
            try:
                return sampler, self._rows_differ(sampler, inputs, method)
            except RowsDiffer:
                if not (rows := next(fewer, None)):
                    raise
            sampler = self.sampler(inputs, method, rows)

    def _rows_differ(self, sampler: Any, inputs: Inputs, method: Method, again: bool = False) -> bool:
        """Check that the base classifier judges each view by itself; whether its scores depend on the row."""
        differ = not sampler.probe(inputs.values, method.shares_shapes, again)
        looks = getattr(method, "looks", [method.settings.n or 0]) if differ else []
        if any(look % sampler.rows for look in looks):
            raise RowsDiffer(
                f"the model's scores depend on the row by rounding, so every row must vote equally often: n and the looks at "
                f"{', '.join(map(str, looks[:4]))}, … must be multiples of rows={sampler.rows}; give other rows (rows=, --rows)"
            )
        return differ

    def deviation(self, inputs: Inputs) -> float:
        """How far, in total variation per view, the noise on these inputs is from the certificate's law."""
        law, shape = self.smoothing.law, inputs.values.shape[1:]
        return law.for_shape(shape).deviation(shape, inputs.levels) if isinstance(law, Law) else 0.0

    def sampler(self, inputs: Inputs, method: Method, rows: int | None = None, block: int | None = None) -> Any:
        """The sampler or enumerator of a method on these inputs; `rows`, `block`: those of a resumed run, if any.

        It is made once and kept, so that compiled code is reused.
        """
        values = inputs.values
        rows, block = self.rows or rows, self.block or block
        shape = (values.shape[1:], values.dtype, inputs.levels, rows, block, method.shares_shapes, str(method.law.spec))
        key = (method.name == "exact", *shape)
        view = self.smoothing.view_shape(values.shape[1:])
        if key not in self._samplers:
            if hasattr(self.network.runner, "makes"):
                self.network.fit((2, *view))  # torch takes over where `auto` chose a graph that cannot be fused
            make = _SAMPLERS.get(method.name, make_sampler)
            how = {"rows": rows, "block": block, "in_flight": self.in_flight, "compile": self.compile}
            self._samplers[key] = make(self.network, self.smoothing, method, inputs, **how)
        self.network.fit((self._samplers[key].rows, *view))
        return self._samplers[key]

    @contextmanager
    def ready(self, inputs: Inputs, of_run: str | None = None) -> Iterator[None]:
        """Context in which the network has its memory layout and is in evaluation mode; the caller's module is restored.

        `of_run`: the backend of the run that is resumed."""
        with current(self.network.device):
            self.network.prepare(self.smoothing.view_shape(inputs.values.shape[1:]), bool(self.compile), of_run)
            with self.network.evaluating():
                yield

    def _check_text_form(self) -> None:
        name = self.smoothing.spec.name
        if name not in SMOOTHINGS and name not in SMOOTHINGS.names():
            raise BadInput(f"{name} has no text form to store in a run folder: certify in memory, without out")

    def _manifest(
        self, batch: Batch, method: Method, sampler: Sampler | Enumerator, secret: Seed | None, rows_differ: bool
    ) -> Manifest:
        """The manifest of a call: everything its claims depend on."""
        network, inputs, law = self.network, batch.inputs, self.smoothing.law
        shared = isinstance(sampler, Sampler) and (sampler.blocks > 1 or method.shares_shapes)
        compute = network.section(
            rows=sampler.rows,
            block=sampler.block_size if shared and isinstance(sampler, Sampler) else None,
            compile=getattr(sampler, "compiled", False) or None,
            rows_differ=rows_differ or None,
        )
        probed = sampler.probe_entries(inputs.values)  # before the hash: a first call may fill what a model keeps
        return manifests.compose(
            method,
            smoothing=str(self.smoothing.spec),
            inputs=inputs.section(self.input_range, law, method.deviation, self.standardise),
            compute=compute,
            model=ModelSection(*self.identity(), self.depends, *probed),
            data=batch.section(self.num_classes),
            seed=None if secret is None else secret.section,
            versions={"vauban": __version__, **{name: version(name) for name in ("numpy", "scipy", "mpmath")}},
        )

    def identity(self) -> tuple[str, str]:
        """The base classifier's text form and fingerprint."""
        if self.base.spec is not None and self.base.fingerprint is not None:
            return self.base.spec, str(self.base.current_fingerprint())
        from vauban.engine.fingerprint import model_fingerprint, model_name

        spec = self.base.spec or model_name(self.base.module)
        return spec, model_fingerprint(self.base.module, spec)
