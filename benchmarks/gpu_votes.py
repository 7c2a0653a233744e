"""Votes per second on one GPU, side by side in one process; then 500 inputs of ImageNet size certified at a radius.

    python benchmarks/gpu_votes.py --seconds 230 --out gpu_votes.json

Random weights (batch statistics from one batch of noise, so that scores stay finite): the speed is the network's, what it says
is not. So that certifying has something to decide, the label is steered (`steered.py`).

Measured: "bare", forward passes on one batch that lies ready; "loop", the published script's loop (repeat, add noise, classify,
bring every vote to the host, count in Python), network and layout as published; "vauban", the engine itself, many inputs a
shape. What is compiled is compiled alike for "bare" and "vauban"; for the ResNet-110 after kernels for its convolutions were
timed (`--tune`). Every result is written as soon as it is there; parts that do not fit into the time left are skipped and
named, parts that fail are named with their error and cost nothing but themselves.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
from steered import SIGMA, Steered, pictures

from vauban.engine.compiled import TUNED
from vauban.engine.compiled import compiled as make_compiled
from vauban.engine.network import device_name, in_precision
from vauban.engine.scheduler import Scheduler, Work
from vauban.methods import CertifySettings, method_for
from vauban.models import load
from vauban.runs.run import Run
from vauban.seed import Seed
from vauban.smoothed import SmoothedClassifier
from vauban.votes import counts_at

RADIUS, ALPHA, MOST = 0.5, 0.001, 100_000


@dataclass(frozen=True)
class Network:
    """A network, the pictures it is asked about, and the shape it is asked in."""

    name: str
    spec: str
    size: int
    rows: int
    block: int
    inputs: int = 500
    tune: bool = False


NETWORKS = [
    Network("ResNet-110", "resnet110", 32, 4096, 128),
    Network("ResNet-50", "resnet50", 224, 1024, 128),
]
TINY = [
    Network("tiny-a", "cnn-small:channels=3,classes=10,size=16", 16, 64, 16, 20),
    Network("tiny-b", "cnn-small:channels=3,classes=10,size=12", 12, 128, 32, 20),
]


@dataclass
class Report:
    """What has been measured, on disk after every part; and the clock that says what still fits."""

    path: Path
    seconds: float
    device: torch.device
    began: float = field(default_factory=time.monotonic)
    content: dict[str, Any] = field(default_factory=dict)

    @property
    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.began)

    def keep(self, part: str, result: dict[str, Any]) -> None:
        self.content.setdefault("results", []).append({"part": part, **result})
        self.write()
        print(f"[{self.seconds - self.left:6.1f} s] {part}: {json.dumps(result)}", flush=True)

    def write(self) -> None:
        self.path.write_text(json.dumps(self.content, indent=1) + "\n")

    @contextmanager
    def part(self, name: str, needs: float) -> Iterator[bool]:
        """Whether a part fits; whatever goes wrong in it is written down and ends there."""
        if self.left < needs:
            self.content.setdefault("skipped", []).append({"part": name, "needs": needs, "left": round(self.left, 1)})
            self.write()
            print(f"skipped, {self.left:.0f} s left: {name}", flush=True)
            yield False
            return
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                yield True
            said = [str(w.message)[:300] for w in caught if "torch.compile failed" in str(w.message)]
            if said:
                self.content.setdefault("warnings", []).append({"part": name, "said": said})
        except Exception as problem:
            self.content.setdefault("failed", []).append({"part": name, "error": f"{problem!r}"[:500]})
            traceback.print_exc()
        self.write()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def clock(way: Callable[[int], None], passes: int, device: torch.device) -> float:
    synchronise(device)
    began = time.perf_counter()
    way(passes)
    synchronise(device)
    return time.perf_counter() - began


def rate(way: Callable[[int], None], rows: int, seconds: float, device: torch.device) -> dict[str, Any]:
    """Votes per second after a warm-up, whose time (compilation, if any) is told too."""
    warm = clock(way, 2, device)
    each = clock(way, 2, device) / 2
    passes = max(2, round(seconds / each))
    spent = clock(way, passes, device)
    return {"votes_per_second": round(passes * rows / spent, 1), "passes": passes, "warm_up_seconds": round(warm, 2)}


class Bench:
    """One network in every way."""

    def __init__(self, network: Network, device: torch.device, compiled: bool):
        self.network, self.device, self.compiled = network, device, compiled
        self.how: bool | str = TUNED if network.tune else True
        self.inputs = pictures(network.inputs, network.size)
        self._smoothed: dict[tuple[str, bool], SmoothedClassifier] = {}

    def net(self) -> torch.nn.Module:
        """The network with random weights and batch statistics of one batch of noise."""
        net = load(self.network.spec, device=str(self.device), allow_random=True).module
        norms = [m for m in net.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
        for norm in norms:
            norm.momentum = 1.0
        size = (32, 3, self.network.size, self.network.size)
        with torch.no_grad():
            net.train()
            net(torch.rand(size, generator=torch.Generator().manual_seed(1)).to(self.device))
            net.eval()
        return Steered(net).eval()

    def smoothed(self, precision: str, compiled: bool) -> SmoothedClassifier:
        key = precision, compiled
        if key not in self._smoothed:
            self._smoothed[key] = SmoothedClassifier(
                self.net(),
                f"gaussian:sigma={SIGMA}",
                num_classes=load(self.network.spec, allow_random=True).num_classes or 10,
                device=self.device,
                rows=self.network.rows,
                block=self.network.block,
                precision=precision,
                compile=self.how if compiled else False,
            )
        return self._smoothed[key]

    def ready(self, precision: str, compiled: bool) -> SmoothedClassifier:
        """The classifier with its network laid out and in evaluation mode, in which it stays."""
        smoothed = self.smoothed(precision, compiled)
        stack = ExitStack()
        stack.enter_context(smoothed.ready(self.inputs))
        stack.pop_all()
        return smoothed

    def bare(self, precision: str, compiled: bool) -> Callable[[int], None]:
        """Forward passes of one batch; in the layout Vauban chooses."""
        network = self.ready(precision, compiled).network
        shape = (self.network.rows, 3, self.network.size, self.network.size)
        batch = network.laid_out(torch.rand(shape, device=self.device))
        model = make_compiled(network.model, how=self.how) if compiled else network.model

        def passes(count: int) -> None:
            with torch.inference_mode(), in_precision(precision, self.device):
                for _ in range(count):
                    model(batch)

        return passes

    def loop(self, precision: str) -> Callable[[int], None]:
        """The published loop, one input, plain layout."""
        net, rows = self.net(), self.network.rows
        picture = (self.inputs.values[0].float() / 255).to(self.device)

        def passes(count: int) -> None:
            counts: dict[int, int] = {}
            with torch.inference_mode(), in_precision(precision, self.device):
                for _ in range(count):
                    copies = picture.repeat((rows, 1, 1, 1))
                    votes = net(copies + torch.randn_like(copies) * SIGMA).argmax(1)
                    for vote in votes.cpu().numpy():
                        counts[int(vote)] = counts.get(int(vote), 0) + 1

        return passes

    def vauban(self, precision: str, compiled: bool) -> Callable[[int], None]:
        """The engine: as many inputs as a shape has places, the same number of votes each."""
        smoothed = self.ready(precision, compiled)
        law, classes = smoothed.smoothing.law, smoothed.num_classes
        settings = CertifySettings.of(law, classes, n=MOST, alpha=ALPHA, stop=f"target:radius={RADIUS}")
        method = method_for(settings, law, classes, self.inputs.values.shape[1:], smoothed.deviation(self.inputs))
        sampler = smoothed.sampler(self.inputs, method)
        if compiled and not sampler.compiled:
            raise RuntimeError("compilation failed")

        def passes(count: int) -> None:
            votes = count * sampler.block_size
            works = (
                Work(i, self.inputs.values[i % len(self.inputs.values)], counts_at("count", [votes]))
                for i in range(sampler.blocks)
            )
            for _ in Scheduler(sampler, Seed.of(1)).run(works):
                pass

        return passes

    def headline(self, precision: str, compiled: bool) -> dict[str, Any]:
        """Certify all inputs at the radius, in a run folder, as the command does; then verify the folder."""
        smoothed = self.smoothed(precision, compiled)
        m = len(self.inputs.values)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            stop = f"target:radius={RADIUS}"
            began = time.perf_counter()
            certs = smoothed.certify(
                self.inputs.values, [0] * m, n=MOST, alpha=ALPHA, stop=stop, seed=1, out=out, progress=False
            )
            spent = time.perf_counter() - began
            began = time.perf_counter()
            verdict = Run.open(out).verify()
            checked = time.perf_counter() - began
        return {
            "inputs": m,
            "radius": RADIUS,
            "sigma": SIGMA,
            "alpha": ALPHA,
            "most_votes": MOST,
            "seconds": round(spent, 2),
            "votes": verdict.votes,
            "votes_per_input": round(verdict.votes / m, 1),
            "votes_per_second": round(verdict.votes / spent, 1),
            "certified": float((~certs.abstained).mean()),
            "verify_seconds": round(checked, 2),
        }


def memory(device: torch.device) -> dict[str, Any]:
    if device.type != "cuda":
        return {}
    peak = torch.cuda.max_memory_allocated(device) / 2**30
    torch.cuda.reset_peak_memory_stats(device)
    return {"peak_gib": round(peak, 2)}


def measure(report: Report, network: Network, headline: bool, args: argparse.Namespace) -> None:
    """All parts of one network, the most telling first."""
    device, compiled = report.device, args.compile
    bench = Bench(network, device, compiled)
    each = args.each
    fast = "bf16"
    ready: dict[str, Callable[[int], None]] = {}
    long = args.compile_seconds * (2.5 if network.tune else 1.0)
    costs = {"compile": long if compiled else 2.0, "short": 3 * each + 6}

    def one(part: str, prepare: Callable[[], Callable[[int], None]], needs: float, **about: Any) -> None:
        name = f"{network.name}: {part}"
        with report.part(name, needs) as fits:
            if fits:
                began = time.perf_counter()
                ready[part] = prepare()
                spent = {"prepare_seconds": round(time.perf_counter() - began, 2)}
                result = spent | rate(ready[part], network.rows, each, device)
                report.keep(name, {"network": network.name, "rows": network.rows, **about, **result, **memory(device)})

    one("loop fp32", lambda: bench.loop("fp32"), costs["short"], way="loop", precision="fp32")
    one(
        f"bare {fast}",
        lambda: bench.bare(fast, compiled),
        costs["compile"],
        way="bare",
        precision=fast,
        compiled=bench.how if compiled else False,
    )
    one(
        f"vauban {fast}",
        lambda: bench.vauban(fast, compiled),
        costs["compile"],
        way="vauban",
        precision=fast,
        compiled=bench.how if compiled else False,
    )
    with report.part(f"{network.name}: vauban to bare, in turns", 12 * each) as fits:
        if fits:
            ways = {way: ready[f"{way} {fast}"] for way in ("bare", "vauban")}
            passes = {name: max(2, round(each / clock(way, 2, device) * 2)) for name, way in ways.items()}
            rounds = [
                {k: passes[k] * network.rows / clock(w, passes[k], device) for k, w in ways.items()} for _ in range(4)
            ]
            ratio = median(r["vauban"] / r["bare"] for r in rounds)
            rates = {name: round(median(r[name] for r in rounds), 1) for name in ways}
            report.keep(
                f"{network.name}: vauban to bare, in turns", {"precision": fast, "ratio": round(ratio, 4), **rates}
            )
    if headline:
        with report.part("headline", args.headline_seconds) as fits:
            if fits:
                result = bench.headline(fast, compiled)
                slow = [r for r in report.content["results"] if r["part"] == f"{network.name}: loop fp32"]
                if slow:
                    result["published_loop_seconds"] = round(result["inputs"] * MOST / slow[0]["votes_per_second"])
                report.keep("headline", {"network": network.name, "precision": fast, "compiled": compiled, **result})


def measure_rest(report: Report, network: Network, args: argparse.Namespace) -> None:
    """Other precisions, network not compiled."""
    bench = Bench(network, report.device, False)
    on_gpu = report.device.type == "cuda"
    plain: list[tuple[str, str, Callable[[], Callable[[int], None]]]] = [
        ("loop", "tf32", lambda: bench.loop("tf32")),
        ("bare", "tf32", lambda: bench.bare("tf32", False)),
        ("bare", "fp32", lambda: bench.bare("fp32", False)),
    ]
    for kind, precision, prepare in plain if on_gpu else plain[2:]:
        name = f"{network.name}: {kind} {precision}"
        with report.part(name, 3 * args.each + 6) as fits:
            if fits:
                about = {"network": network.name, "rows": network.rows, "way": kind, "precision": precision}
                report.keep(name, about | rate(prepare(), network.rows, args.each, report.device))
    for precision in ("fp32", "tf32", "fp16") if on_gpu else ("fp32",):
        name = f"{network.name}: vauban {precision}"
        with report.part(name, 3 * args.each + 25) as fits:
            if fits:
                way = bench.vauban(precision, False)
                if on_gpu:  # until noise is compiled
                    clock(way, 2 + 2**31 // (network.rows * 3 * network.size**2), report.device)
                result = rate(way, network.rows, args.each, report.device)
                about = {"network": network.name, "rows": network.rows, "way": "vauban", "precision": precision}
                report.keep(name, {**about, "compiled": False, **result, **memory(report.device)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=230.0, help="time in all, compilation included")
    parser.add_argument("--each", type=float, default=1.5, help="time for each measurement")
    parser.add_argument("--compile-seconds", type=float, default=30.0, help="what one compilation is expected to take")
    parser.add_argument("--headline-seconds", type=float, default=45.0, help="what the headline is expected to take")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("gpu_votes.json"))
    parser.add_argument("--tiny", action="store_true", help="small networks, to try the script out on a CPU")
    names = [network.name for network in NETWORKS]
    parser.add_argument("--only", choices=names, help="one network alone")
    parser.add_argument(
        "--tune", choices=names, nargs="*", default=names[:1], help="networks whose kernels are timed first"
    )
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    args = parser.parse_args()
    device = torch.device(args.device)
    report = Report(args.out, args.seconds, device)
    report.content["about"] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device_name(device),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "seconds": args.seconds,
        "sigma": SIGMA,
    }
    report.write()
    networks = [replace(network, tune=network.name in args.tune) for network in (TINY if args.tiny else NETWORKS)]
    networks = [network for network in networks if args.only in (None, network.name)]
    for network in networks:
        measure(report, network, headline=network is networks[-1], args=args)
    for network in networks:
        measure_rest(report, network, args)
    print(
        f"{args.out}: {len(report.content.get('results', []))} results in {args.seconds - report.left:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
