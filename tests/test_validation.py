"""What a wrong argument is answered: a text is shown as one."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import vauban as vb
from vauban.certificates import derive
from vauban.errors import BadInput
from vauban.poisoning.training.torch_module import ModuleTrainer
from vauban.seed import Seed
from vauban.validation import check_alpha, check_n0, check_radius, check_rho, check_seed, path_of, refuse_bools


@pytest.mark.parametrize(
    ("check", "value", "said"),
    [
        (check_alpha, "0.1", "alpha='0.1': a probability strictly between 0 and 1"),
        (check_alpha, True, "alpha=True: a probability"),
        (check_alpha, np.float64(1.5), "alpha=1.5: a probability"),
        (check_alpha, 1e-300, "alpha=1e-300: at least 1e-200"),
        (check_rho, "0.1", "rho='0.1': a probability strictly between 0 and 1"),
        (check_n0, "100", "n0='100': at least one"),
        (check_radius, "a", "radius 'a': one number"),
        (check_radius, None, "radius None: one number is needed, 0 or more$"),
        (check_radius, True, "radius True: one number"),
        (check_radius, [0, 0.5], r"radius \[0, 0.5\]: one number is needed, 0 or more; for several radii"),
        (check_radius, [0.5], r"radius \[0.5\]: one number is needed, 0 or more; for several radii"),
        (check_radius, float("nan"), "radius nan: a number is needed"),
        (check_radius, -1, "radius -1: a number is needed, 0 or more"),
        (check_seed, "1", "seed='1': a whole number is needed"),
        (check_seed, 1.0, "seed=1.0: a whole number is needed"),
        (check_seed, True, "seed=True: a whole number is needed"),
    ],
)
def test_what_was_given_is_shown_as_it_is(check: Callable[[Any], Any], value: Any, said: str) -> None:
    with pytest.raises(BadInput, match=f"^{said}"):
        check(value)


@pytest.mark.parametrize("radius", [[0, 0.5], np.array([0.1, 0.2]), "0.5", float("nan"), -0.5])
def test_accuracy_is_asked_at_one_radius(radius: Any) -> None:
    certs = derive([[990, 10], [990, 10]], [0, 0], "gaussian:sigma=0.5", truth=[0, 0])
    for ask in (certs.accuracy, certs.certified, certs.accuracy_claim):
        with pytest.raises(BadInput, match="radius"):
            ask(radius)
    assert certs.accuracy(np.float32(0.5)) == certs.accuracy(np.int64(0)) == 1.0


def test_a_seed_is_a_number_that_a_command_line_can_say() -> None:
    assert Seed.of(np.int64(7)).secret == Seed.of(7).secret != Seed.of(-7).secret
    for other in (7.0, True, "7", np.array(7)):
        with pytest.raises(BadInput, match="seed="):
            Seed.of(other)
        with pytest.raises(BadInput, match="seed="):
            ModuleTrainer(list, 2, seed=other)  # type: ignore[arg-type]
    assert type(ModuleTrainer(list, 2, seed=np.int64(7)).seed) is int  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "smoothing",
    [
        lambda: vb.Gaussian(sigma=True),
        lambda: vb.Gaussian(np.True_),  # type: ignore[arg-type]
        lambda: vb.Gaussian([0.5, True]),
        lambda: vb.Ablation(True),
        lambda: vb.Band(4, stride=True),
        lambda: vb.Block(size=True),
        lambda: vb.Discrete(keep=True),
        lambda: vb.Splitting(1.0, offsets=True),
        lambda: vb.Sparse(True),
    ],
)
def test_true_is_no_number_of_a_smoothing(smoothing: Callable[[], Any]) -> None:
    with pytest.raises(BadInput, match="=True: "):
        smoothing()


def test_flags_of_smoothings_are_true_or_false() -> None:
    assert vb.Band(4, sampled=True).spec.params["sampled"] == "true"
    assert vb.Discrete(0.5, codes=True, values=8).spec.params["codes"] == "true"


def test_a_path_is_text_or_a_path_and_knows_the_home_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert path_of("out", "~/run") == tmp_path / "run"
    assert path_of("out", tmp_path) == tmp_path
    for wrong in (None, 3, b"run", ["run"]):
        with pytest.raises(BadInput, match="^out=.*: a path is needed"):
            path_of("out", wrong)
    with pytest.raises(BadInput, match="home folder"):
        path_of("out", "~no-such-user-here/run")
    with pytest.raises(BadInput, match="^path=None: the folder of a run"):
        vb.Run.open(None)  # type: ignore[arg-type]


def test_flags_of_other_smoothings_stay_flags() -> None:
    """Only a parameter that is annotated as something else than a flag is refused: a foreign smoothing may annotate none."""

    def init(number: float, flag: bool | None = None, unsaid=False, named: "bool | None" = None) -> None:  # type: ignore[no-untyped-def]
        pass

    refuse_bools(init, (0.5, True, True), {"named": True})
    with pytest.raises(BadInput, match="number=True"):
        refuse_bools(init, (True,), {})


def test_a_radius_is_one_number_of_any_kind() -> None:
    for one in (0.5, Fraction(1, 2), Decimal("0.5"), np.float32(0.5), np.array(0.5), torch.tensor(0.5)):
        assert check_radius(one) == 0.5
    assert check_radius(float("inf")) == float("inf")
