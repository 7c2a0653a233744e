"""Before a run: models whose votes would not be independent are refused, and random ones are declared."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.engine import network
from vauban.engine.random_models import check_dispersion
from vauban.errors import BadInput, RunRefused
from vauban.methods import CertifySettings
from vauban.models.unchanged import generator_states

Model = Callable[[torch.Tensor], torch.Tensor]
PROBE_SECONDS = 2.0  # as outside of tests, where a model is asked the same up to 20 times
X = torch.tensor([[0.2, 0.3, 0.4, 0.5], [0.6, 0.7, 0.8, 0.9]])


@pytest.fixture(autouse=True)
def asked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_PROBE_SECONDS", PROBE_SECONDS)


def plain(views: torch.Tensor) -> torch.Tensor:
    mean = views.flatten(1).mean(dim=1)
    return torch.stack([0.5 - mean, mean - 0.5], dim=1)


def flipped(heads: torch.Tensor | bool, views: torch.Tensor) -> torch.Tensor:
    return torch.tensor([[1.0, 0.0]] if heads else [[0.0, 1.0]]).repeat(len(views), 1)


def coin_of_torch(views: torch.Tensor) -> torch.Tensor:
    return flipped(torch.rand(()) < 0.45, views)


def coin_of_numpy(views: torch.Tensor) -> torch.Tensor:
    return flipped(np.random.rand() < 0.45, views)


def coin_of_python(views: torch.Tensor) -> torch.Tensor:
    return flipped(random.random() < 0.45, views)


def own_coin() -> Model:
    generator = np.random.default_rng(0)
    return lambda views: flipped(generator.random() < 0.45, views)


def training_norm() -> Model:
    norm = torch.nn.BatchNorm1d(4).train()
    return lambda views: plain(norm(views))


def pairs_averaged(views: torch.Tensor) -> torch.Tensor:
    """Rows 2i and 2i + 1 are judged by their mean: a check by large blocks does not see it."""
    even = len(views) // 2 * 2
    both = views[:even].view(-1, 2, *views.shape[1:]).mean(dim=1, keepdim=True).expand(-1, 2, *views.shape[1:])
    return plain(torch.cat([both.flatten(0, 1), views[even:]]))


def far_pairs(views: torch.Tensor) -> torch.Tensor:
    """Row i looks at row i + 32."""
    return plain(views + 0.01 * views.roll(-32, 0))


def by_row(views: torch.Tensor) -> torch.Tensor:
    return plain(views) + 1e-6 * torch.arange(len(views))[:, None] * torch.tensor([1.0, -1.0])


def polarity(views: torch.Tensor) -> torch.Tensor:
    """One answer for the whole batch, by the mean of a feature over all rows: other rows of the same kind do not change it."""
    return flipped(bool(views[:, 3].mean() < 0.5), views)


def majority(views: torch.Tensor) -> torch.Tensor:
    """Every row gets the label that most rows have."""
    return flipped(bool(plain(views).argmax(1).float().mean() < 0.5), views)


MIXING = {
    "torch's coin": (lambda: coin_of_torch, "draws random numbers .torch's generator"),
    "NumPy's coin": (lambda: coin_of_numpy, "draws random numbers .numpy's generator"),
    "Python's coin": (lambda: coin_of_python, "draws random numbers .random's generator"),
    "a coin of its own": (own_coin, "two answers|depends on the other views"),
    "a layer in training": (training_norm, "depends on the other views"),
    "pairs": (lambda: pairs_averaged, "depends on the other views"),
    "far pairs": (lambda: far_pairs, "depends on the other views"),
    "one answer by a mean": (lambda: polarity, "depends on the other views"),
    "a majority": (lambda: majority, "depends on the other views"),
}

SETTINGS = {
    "fixed": {"n": 200, "alpha": 0.01},
    "target": {"n": 1_000, "alpha": 0.01, "stop": "target:radius=0.1"},
    "grid": {"n": 1_000, "alpha": 0.01, "stop": "grid:step=0.1"},
}


@pytest.mark.parametrize("how", SETTINGS)
@pytest.mark.parametrize("name", MIXING)
def test_a_model_whose_votes_are_not_independent_is_refused(name: str, how: str, tmp_path: Path) -> None:
    make, complaint = MIXING[name]
    smoothed = vb.SmoothedClassifier(make(), vb.Gaussian(sigma=0.5), num_classes=2, rows=100)
    with pytest.raises(BadInput, match=complaint):
        smoothed.certify(X, [0, 1], seed=1, out=tmp_path / "run", **SETTINGS[how])
    assert not (tmp_path / "run" / "manifest.json").exists()
    with pytest.raises(BadInput, match=complaint):
        smoothed.predict(X, n=100, seed=1)


@pytest.mark.parametrize("model", [polarity, majority])
@pytest.mark.parametrize("slow", [False, True])
def test_so_is_one_whose_inputs_are_all_alike(model: Model, slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchanged for one another, views of inputs that are alike leave a mean and a majority as they were."""
    monkeypatch.setattr(network, "_PROBE_SECONDS", 0.0 if slow else PROBE_SECONDS)
    alike = torch.full((4, 4), 230, dtype=torch.uint8)
    for smoothing in ("gaussian:sigma=0.5", "splitting:sigma=0.3"):
        smoothed = vb.SmoothedClassifier(model, smoothing, num_classes=2)
        settings = {} if smoothed.smoothing.law.exact else {"n": 200, "alpha": 0.01}
        with pytest.raises(BadInput, match="depends on the other views"):
            smoothed.certify(alike, [1] * 4, **settings)


def test_a_model_that_refuses_views_which_no_smoothing_makes_is_taken() -> None:
    def strict(views: torch.Tensor) -> torch.Tensor:
        if bool((views.flatten(1).amax(1) - views.flatten(1).amin(1) < 1e-6).any()):
            raise ValueError("a view of one value alone")
        return plain(views)

    certs = vb.SmoothedClassifier(strict, vb.Gaussian(sigma=0.5), num_classes=2).certify(X, [0, 1], n=200, alpha=0.01)
    assert len(certs) == 2


def test_a_module_that_changes_its_buffers_is_refused() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, views: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return plain(views)

    with pytest.raises(BadInput, match="changes the model's buffer calls"):
        vb.SmoothedClassifier(Counting(), vb.Gaussian(sigma=0.5), num_classes=2).certify(X, [0, 1], n=100)


def test_rows_that_differ_by_rounding_are_allowed_for_a_fixed_number_of_votes_alone(tmp_path: Path) -> None:
    smoothed = vb.SmoothedClassifier(by_row, vb.Gaussian(sigma=0.5), num_classes=2, rows=50)
    smoothed.certify(X, [0, 1], n=200, alpha=0.01, seed=1, out=tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["compute"]["rows_differ"] is True
    assert manifest["requires"] == ["compute.rows_differ"]
    assert "average over rows" in manifest["claim"]
    assert vb.Run.open(tmp_path / "run").verify().votes == 400
    for more in ({"stop": "target:radius=0.1"}, {"stop": "grid:step=0.1"}):
        with pytest.raises(BadInput, match="need rows that agree"):
            smoothed.certify(X, [0, 1], n=1_000, alpha=0.01, **more)
    with pytest.raises(BadInput, match="need rows that agree"):
        vb.SmoothedClassifier(by_row, vb.Gaussian(sigma=0.5), num_classes=2, rows=50, block=25).certify(
            X, [0, 1], n=200
        )


def test_a_model_that_begins_to_mix_views_while_it_votes_is_not_sealed(tmp_path: Path) -> None:
    calls = [0]

    def later(views: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return plain(views + views.mean() * (calls[0] > 60))

    smoothed = vb.SmoothedClassifier(later, vb.Gaussian(sigma=0.5), num_classes=2, rows=100)
    with pytest.raises(BadInput, match="depends on the other views|two answers"):
        smoothed.certify(X, [0, 1], n=3_000, alpha=0.01, seed=1, out=tmp_path / "run")
    assert not (tmp_path / "run" / "seal.json").exists()


def noisy(views: torch.Tensor) -> torch.Tensor:
    """Random by design, each row by itself."""
    return plain(views) + 0.2 * torch.randn(len(views), 2)


@pytest.mark.parametrize("stochastic", ["views", "rows"])
def test_a_declared_random_model_is_certified_resumed_and_verified(stochastic: str, tmp_path: Path) -> None:
    smoothed = vb.SmoothedClassifier(noisy, vb.Gaussian(sigma=0.5), num_classes=2, stochastic=stochastic)
    states = generator_states()
    whole = smoothed.certify(X, [0, 1], n=300, alpha=0.01, seed=1, out=tmp_path / "run")
    assert torch.equal(states["torch"], torch.get_rng_state())
    assert whole.counts[0].tolist() not in ([300, 0], [0, 300])
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["compute"]["rows"] == (1 if stochastic == "views" else 100)
    assert manifest["requires"] == ["compute.stochastic"]
    assert "random by design" in manifest["claim"]
    lines = (tmp_path / "run" / "tallies.jsonl").read_text().splitlines(keepends=True)
    for name in ("claims.csv", "seal.json"):
        (tmp_path / "run" / name).unlink()
    (tmp_path / "run" / "tallies.jsonl").write_text(lines[0])
    torch.manual_seed(5)
    assert smoothed.certify(X, [0, 1], n=300, alpha=0.01, seed=1, out=tmp_path / "run") == whole
    assert vb.Run.open(tmp_path / "run").verify().votes == 600
    with pytest.raises(RunRefused, match=r"compute\.stochastic"):
        vb.SmoothedClassifier(plain, vb.Gaussian(sigma=0.5), num_classes=2, rows=manifest["compute"]["rows"]).certify(
            X, [0, 1], n=300, alpha=0.01, seed=1, out=tmp_path / "run"
        )


@pytest.mark.parametrize("make", [lambda: coin_of_torch, lambda: coin_of_numpy, lambda: coin_of_python])
def test_one_coin_for_a_whole_batch_is_not_independent_by_row(make: Callable[[], Model]) -> None:
    with pytest.raises(BadInput, match="not independent .*stochastic='views'"):
        vb.SmoothedClassifier(make(), vb.Gaussian(sigma=0.5), num_classes=2, stochastic="rows").certify(
            X, [0, 1], n=300
        )
    smoothed = vb.SmoothedClassifier(make(), vb.Gaussian(sigma=0.5), num_classes=2, stochastic="views")
    counts = smoothed.certify(X, [0, 1], n=400, seed=2).counts
    assert (abs(counts[:, 0] - 180) < 60).all()  # a coin for each view, 0.45


def test_dispersion_is_judged_as_independent_rows_would_be() -> None:
    rng, refused = np.random.default_rng(0), 0
    for _ in range(300):
        p = rng.random(50)
        try:
            check_dispersion((rng.random((40, 50)) < p).astype(int), 2)
        except BadInput:
            refused += 1
    assert refused == 0
    with pytest.raises(BadInput, match="not independent"):
        check_dispersion(np.repeat((rng.random((40, 1)) < 0.5).astype(int), 50, axis=1), 2)


def test_exact_smoothings_and_compiled_programs_refuse_random_models() -> None:
    pictures = torch.zeros(2, 1, 2, 2, dtype=torch.uint8)

    def model(views: torch.Tensor) -> torch.Tensor:
        return plain(views)

    with pytest.raises(BadInput, match="exact claims need a base classifier that always gives the same answer"):
        vb.SmoothedClassifier(model, vb.Splitting(sigma=0.2), num_classes=2, stochastic="rows").certify(
            pictures, [0, 0]
        )
    with pytest.raises(BadInput, match="compile with a random base classifier"):
        vb.SmoothedClassifier(model, vb.Gaussian(sigma=0.2), num_classes=2, stochastic="rows", compile=True).certify(
            X, [0, 0], n=100
        )
    with pytest.raises(BadInput, match="stochastic='yes'"):
        vb.SmoothedClassifier(model, vb.Gaussian(sigma=0.2), num_classes=2, stochastic="yes")


def test_ablation_does_not_round_up_for_a_random_model(tmp_path: Path) -> None:
    """Three pixels, one kept: a model that votes 0 with probability 0.7 got radius 1, and one changed pixel breaks it."""
    pictures = torch.zeros(1, 1, 1, 3, dtype=torch.uint8)

    def lucky(views: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.rand(len(views)), torch.full((len(views),), 0.3)], dim=1)

    smoothed = vb.SmoothedClassifier(lucky, vb.Ablation(retained=1), num_classes=2, stochastic="rows")
    certs = smoothed.certify(pictures, [0], n=5_000, alpha=0.01, seed=1, out=tmp_path / "run")
    assert certs.radius.tolist() == [0]
    assert vb.Run.open(tmp_path / "run").certificates() == certs
    assert vb.Run.open(tmp_path / "run").verify().votes == 5_000
    counts = certs.counts
    assert vb.derive(counts, [0], "ablation:retained=1,features=3", alpha=0.01).radius.tolist() == [1]  # deterministic


def halves(views: torch.Tensor) -> torch.Tensor:
    """The first half of a batch votes 0, the second half 1, whatever they see."""
    first = (torch.arange(len(views)) < len(views) // 2).float()
    return torch.stack([first, 1 - first], dim=1)


def test_a_model_that_votes_by_row_is_refused() -> None:
    """It was taken for rounding, and 50 votes of 100 rows certified what half of the rows never said."""
    smoothed = vb.SmoothedClassifier(halves, vb.Gaussian(sigma=0.5), num_classes=2)
    with pytest.raises(BadInput, match="row it is in, by more than rounding"):
        smoothed.certify(X, [0, 0], n=50, alpha=0.01)
    with pytest.raises(BadInput, match="row it is in, by more than rounding"):
        smoothed.predict(X, n=50)


def test_rows_that_differ_vote_equally_often() -> None:
    smoothed = vb.SmoothedClassifier(by_row, vb.Gaussian(sigma=0.5), num_classes=2, rows=40)
    with pytest.raises(BadInput, match="multiples of rows=40"):
        smoothed.certify(X, [0, 1], n=50, alpha=0.01)


def above(most: int) -> Model:
    """Scores depend on the row by rounding where a batch has more rows than this."""
    return lambda views: by_row(views) if len(views) > most else plain(views)


def test_fewer_rows_vote_where_scores_depend_on_the_row_and_none_were_asked_for(tmp_path: Path) -> None:
    smoothed = vb.SmoothedClassifier(above(50), vb.Gaussian(sigma=0.5), num_classes=2)
    smoothed.certify(X, [0, 1], n=1_000, alpha=0.01, seed=1, stop="grid:step=0.1", out=tmp_path / "run")
    compute = json.loads((tmp_path / "run" / "manifest.json").read_text())["compute"]
    assert compute["rows"] == 50
    assert "rows_differ" not in compute
    assert (smoothed.predict(X, n=100, seed=1).counts.sum(axis=1) == 100).all()
    assert smoothed.plan(X, n=1_000, alpha=0.01, stop="grid:step=0.1", seconds=0.1).votes_per_second > 0
    with pytest.raises(BadInput, match="need rows that agree"):
        vb.SmoothedClassifier(above(50), vb.Gaussian(sigma=0.5), num_classes=2, rows=100).certify(
            X, [0, 1], n=1_000, stop="grid:step=0.1"
        )


def test_fewer_rows_vote_in_exact_claims_too() -> None:
    pictures = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8)
    found = [
        vb.SmoothedClassifier(model, "band:size=2", num_classes=2).certify(pictures, [0, 1])
        for model in (above(25), plain)
    ]
    assert np.array_equal(found[0].radius, found[1].radius, equal_nan=True)
    with pytest.raises(BadInput, match="exact claims need another compute shape"):
        vb.SmoothedClassifier(above(20), "band:size=2", num_classes=2).certify(pictures, [0, 1])


def test_a_rare_coin_for_a_whole_batch_is_mostly_found() -> None:
    """The check draws other coins every time; it used to draw the same forty."""

    def rare(views: torch.Tensor) -> torch.Tensor:
        return flipped(torch.rand(()) < 0.97, views)

    refused = 0
    for _ in range(6):
        try:
            smoothed = vb.SmoothedClassifier(rare, vb.Gaussian(sigma=0.5), num_classes=2, stochastic="rows")
            smoothed.certify(X, [0, 1], n=100, alpha=0.01)
        except BadInput:
            refused += 1
    assert refused >= 4  # each is missed with probability 0.05 ** 2 at most


def test_weights_changed_after_loading_are_another_model(tmp_path: Path) -> None:
    from vauban.models import load, packaged

    base = load(packaged("mnist"))
    before = vb.SmoothedClassifier(base, "gaussian:sigma=0.5").identity()
    with torch.no_grad():
        next(base.module.parameters()).add_(1.0)
    after = vb.SmoothedClassifier(base, "gaussian:sigma=0.5").identity()
    assert before[0] == after[0]
    assert before[1] != after[1]


class Counted(torch.nn.Module):
    """Scores by a weight, and how often they were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.calls = torch.nn.Parameter(torch.ones(())), 0

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return plain(views) * self.weight


@pytest.mark.parametrize(("rows", "before", "after"), [(50, 17, 15), (100, 18, 16), (1000, 22, 20)])
def test_slow_models_are_asked_for_few_shapes(
    rows: int, before: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times the same shape and two other orders, as few as separate any two rows, and four in which one view stands in the
    place of nearly all; after the votes the same once."""
    monkeypatch.setattr("vauban.engine.network._PROBE_SECONDS", 0.0)
    model = Counted()
    smoothed = vb.SmoothedClassifier(model, vb.Gaussian(sigma=0.5), num_classes=2, rows=rows)
    inputs = smoothed.prepare(X)
    with smoothed.ready(inputs):
        method = smoothed._method(CertifySettings.of(smoothed.smoothing.law, 2, n=2000), smoothed.collect(X))
        sampler = smoothed.sampler(inputs, method)
        for again, expected in ((False, before), (False, 0), (True, after)):
            model.calls = 0
            sampler.probe(inputs.values, again=again)
            assert model.calls == expected


def test_a_model_that_changes_while_it_votes_is_not_sealed_even_if_it_judges_each_view_by_itself(
    tmp_path: Path,
) -> None:
    model = Counted()

    def vote(job: Any) -> Any:
        for item in job.vote_here():
            with torch.no_grad():
                model.weight.fill_(2.0)
            yield item

    smoothed = vb.SmoothedClassifier(model, vb.Gaussian(sigma=0.5), num_classes=2, rows=100)
    with pytest.raises(BadInput, match="two answers to the same views"):
        smoothed.certify(X, [0, 1], n=300, alpha=0.01, seed=1, out=tmp_path / "run", on=vote)
    assert not (tmp_path / "run" / "seal.json").exists()


def test_a_model_that_is_changed_between_two_calls_is_checked_anew() -> None:
    model = Counted()
    smoothed = vb.SmoothedClassifier(model, vb.Gaussian(sigma=0.5), num_classes=2, rows=100)
    smoothed.certify(X, [0, 1], n=300, alpha=0.01, seed=1)
    with torch.no_grad():
        model.weight.fill_(2.0)
    smoothed.certify(X, [0, 1], n=300, alpha=0.01, seed=1)
    model.forward = lambda views: plain(views) - plain(views).mean(0)  # type: ignore[method-assign]
    with pytest.raises(BadInput, match="depends on the other views"):
        smoothed.certify(X, [0, 1], n=300, alpha=0.01, seed=1)


def test_a_model_that_exact_claims_refused_is_refused_again() -> None:
    pictures = torch.randint(0, 256, (2, 1, 6, 6), dtype=torch.uint8)
    smoothed = vb.SmoothedClassifier(lambda v: pairs_averaged(v[:, :1]), "band:size=2", num_classes=2, rows=10)
    for _ in range(2):
        with pytest.raises(BadInput, match="depends on the other views"):
            smoothed.certify(pictures, [0, 1])
