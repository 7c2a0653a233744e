"""One update of a network: augmented pictures, views, loss, gradients, optimizer and average of weights."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vauban.engine.network import in_precision
from vauban.errors import BadInput
from vauban.models.weights import few_names, unlike
from vauban.seed import Seed
from vauban.smoothing import Smoothing
from vauban.training.augment import WORDS, augment, mixed
from vauban.training.distributed import Processes
from vauban.training.losses import Batch, build
from vauban.training.recipe import Recipe
from vauban.training.views import Step, ViewMaker, Words


class Average:
    """An average of a network's parameters and buffers over the steps, in which older steps count less and less."""

    def __init__(self, network: torch.nn.Module, decay: float, device: torch.device):
        self.decay = decay
        self.state = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
        self._kept = torch.zeros((), device=device)

    def prepare(self, step: int) -> None:
        """Set the decay of a step: smaller in the first ones, so that random weights are soon forgotten."""
        self._kept.fill_(min(self.decay, (1 + step) / (10 + step)))

    def update(self, network: torch.nn.Module) -> None:
        """Add the network's tensors; one that does not change stays as it is, bit for bit."""
        mine, theirs = [], []
        for name, tensor in network.state_dict().items():
            if tensor.is_floating_point():
                mine.append(self.state[name])
                theirs.append(tensor.detach())
            else:
                self.state[name].copy_(tensor)
        change = torch._foreach_sub(theirs, mine)
        torch._foreach_mul_(change, 1 - self._kept)
        torch._foreach_add_(mine, change)


@dataclass(frozen=True)
class CompiledBatch(Batch):
    """A batch whose views are made by a compiled program, in the network's layout."""

    maker: ViewMaker | None = None

    def made(self, words: torch.Tensor) -> torch.Tensor:
        assert self.maker is not None
        return self.maker(self.x, words)

    def differentiable(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        assert self.maker is not None
        return self.maker.differentiable(x, words)


class Updater:
    """A network in training. `network` keeps the caller's names; `program` is what computes, compiled and shared by processes."""

    def __init__(
        self,
        network: torch.nn.Module,
        smoothing: Smoothing,
        recipe: Recipe,
        shape: torch.Size,
        levels: int | None,
        classes: int,
        device: torch.device,
        processes: Processes,
        compile: bool,
    ):
        self.network, self.smoothing, self.recipe = network, smoothing, recipe
        self.device, self.processes = device, processes
        self.levels, self.classes, self.shape = levels, classes, shape
        if len(smoothing.view_shape(shape)) == 3:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        trained = [p for p in network.parameters() if p.requires_grad]
        if not trained:
            raise BadInput(
                f"no parameter of {type(network).__name__} is to be trained: call requires_grad_(True) on the parts that are"
            )
        self.optimizer = recipe.optimizer_for(trained, device)
        self.average = Average(network, recipe.ema, device) if recipe.ema else None
        self.step, self.done = Step(0, torch.zeros((), dtype=torch.long, device=device)), torch.zeros((), device=device)
        self.wrapped = processes.wrapped(network, device)
        self.program: Any = torch.compile(self.wrapped, dynamic=False) if compile else self.wrapped
        self.loss = build(recipe.loss)
        self.loss.check(smoothing, soft_labels=bool(recipe.mixup or recipe.cutmix))
        self.views = ViewMaker(smoothing, shape, levels, recipe.seed, device)
        self._augment = torch.compile(augment, dynamic=False) if compile else augment
        statistics = [b for b in network.buffers() if b.is_floating_point() and bool(b.isfinite().all())]
        self._finite = [*trained, *statistics]  # a mask of attention may hold infinity
        self._trained, self._names = trained, [name for name, p in network.named_parameters() if p.requires_grad]

    def prepare(self, step: int, steps: int) -> None:
        """Set what changes from step to step: its number, the rate, and the average's decay."""
        self.step = Step(step, self.step.tensor.fill_(step))
        self.done.fill_(step / steps)
        if self.device.type == "cpu":  # dropout draws the same after a resumption
            place = step * self.processes.world + self.processes.rank
            torch.default_generator.manual_seed((self.views.seed.key + place) % 2**63)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(self.recipe.rate(step, steps))
            else:
                group["lr"] = self.recipe.rate(step, steps)
        if self.average is not None:
            self.average.prepare(step)
        if self.recipe.mixup or self.recipe.cutmix:
            self.share, self.box = self._draw_mix(step)

    def update(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One step on this process's pictures, after `prepare`; returns the mean loss and the share of views answered right,
        both on the device, without waiting for it: [2]."""
        recipe, place = self.recipe, self.processes.rank * len(x)
        x = self._augmented(x, place)
        truth = labels
        if recipe.mixup or recipe.cutmix:
            x, labels = mixed(x, labels, self.classes, self.share, self.box)
        size = len(x) // recipe.accumulate
        found = []
        for part in range(recipe.accumulate):
            rows = slice(part * size, (part + 1) * size)
            words = Words(self.views, self.step, place + rows.start, size, recipe.batch, recipe.masks == "batch")
            about = self.smoothing, self.levels, words, self.done, recipe.label_smoothing, self.views
            batch = CompiledBatch(self.program, x[rows], labels[rows], *about)
            with self._without_exchange(part), in_precision(recipe.precision, self.device), self._cast():
                loss, scores = self.loss(batch)
                (loss / recipe.accumulate).backward()
            right = _right(scores.detach(), truth[rows]) if self.loss.classifies else torch.full_like(loss, torch.nan)
            found.append(torch.stack([loss.detach(), right.detach()]))
        if recipe.clip:
            torch.nn.utils.clip_grad_norm_(self._trained, recipe.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(self.network)
        return torch.stack(found).mean(0)

    def training_mode(self) -> None:
        """Training mode for the layers that learn; parts whose parameters are all fixed stay as they are when used, with all
        that is in them, so that no dropout is drawn there and no statistics change."""
        self.network.train()
        for module in self.network.modules():
            parameters = list(module.parameters())
            if parameters and not any(p.requires_grad for p in parameters):
                module.eval()

    def finite(self) -> bool:
        """Whether every trained parameter is finite, and every buffer that was at the start; waits for the device, once."""
        return bool(torch.stack([tensor.detach().isfinite().all() for tensor in self._finite]).all())

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights that would be saved now: the average where there is one."""
        source = self.average.state if self.average is not None else self.network.state_dict()
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in source.items()}

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of this training."""
        average = self.average.state if self.average is not None else {}
        held = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict(), "average": average}
        return {**held, "trained": self._names}

    def differences(self, state: Mapping[str, Any]) -> str:
        """How the network of a checkpoint differs from this one in its tensors, or in which of them are trained; empty where
        `load_state` can go on from it."""
        if found := unlike(state["network"], self.network.state_dict()):
            return found
        now, groups = self._names, state["optimizer"]["param_groups"]
        before = state.get("trained")
        if before is None:  # of a version that wrote no names
            count = sum(len(group["params"]) for group in groups)
            return "" if count == len(now) else f"{count} of its parameters were trained, now {len(now)} are"
        fixed, freed = ([name for name in one if name not in other] for one, other in ((before, now), (now, before)))
        texts = [("trained in it and fixed now", fixed), ("fixed in it and trained now", freed)]
        return "; ".join(f"{text}: {few_names(names)}" for text, names in texts if names)

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.network.load_state_dict(state["network"])
        rates = [group["lr"] for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state["optimizer"])
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate  # this process's own: `prepare` sets it at every step
        if self.average is not None:
            for name, tensor in state["average"].items():
                self.average.state[name].copy_(tensor)

    def _augmented(self, x: torch.Tensor, place: int) -> torch.Tensor:
        if self.recipe.augment == "none":
            return x
        return self._augment(x, self.recipe.augment, self.views.words("augment", self.step, [place], len(x), WORDS))

    def _draw_mix(self, step: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The share of mixup, or the box of cutmix, of a step: by turns at random where both are asked for."""
        recipe, sides = self.recipe, self.shape[-2:]
        draw = np.random.Generator(np.random.Philox(key=Seed.of(recipe.seed).key, counter=step << 192 | 1 << 190))
        cut = bool(recipe.cutmix) and (not recipe.mixup or draw.random() < 0.5)
        law = recipe.cutmix if cut else recipe.mixup
        share = draw.beta(law, law)
        box = None
        if cut:
            lengths = [round(side * (1 - share) ** 0.5) for side in sides]
            starts = [int(draw.integers(0, side - length + 1)) for side, length in zip(sides, lengths, strict=True)]
            edges = [edge for start, length in zip(starts, lengths, strict=True) for edge in (start, start + length)]
            box = torch.tensor(edges).to(self.device)
        return torch.tensor(share, dtype=torch.float32).to(self.device), box

    def _cast(self) -> AbstractContextManager[Any]:
        if self.recipe.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def _without_exchange(self, part: int) -> AbstractContextManager[Any]:
        """Gradients of all parts but the last stay in this process."""
        if self.processes.world > 1 and part < self.recipe.accumulate - 1:
            return self.wrapped.no_sync()  # type: ignore[operator]
        return nullcontext()


def _right(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The share of views answered right; NaN where there are no scores of classes, or labels are not known (below 0)."""
    if scores.dim() != 3:
        return torch.full((), torch.nan, device=scores.device)
    right = (scores.argmax(2) == labels).float().mean()
    return torch.where((labels < 0).any(), torch.nan, right)
