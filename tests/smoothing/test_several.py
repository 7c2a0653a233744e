"""Several smoothings by turns: every row is a view of its own smoothing, and nothing is certified with all of them."""

from collections.abc import Callable

import pytest
import torch

import vauban as vb
from vauban.errors import BadInput
from vauban.laws import law
from vauban.smoothing import Concave, Gaussian, Several, build
from vauban.smoothing.several import one_alone, read

MIXTURES = [
    ["gaussian:sigma=0.25", "gaussian:sigma=1", "laplace:sigma=0.5"],
    ["ablation:retained=3", "ablation:retained=30"],
    ["ablation:retained=3,null=mean,mean=0.25", "ablation:retained=34,null=mean,mean=0.25"],
    ["discrete:keep=0.2", "gaussian:sigma=0.5"],
    ["band:size=1", "band:size=2,count=2", "block:size=3"],
    ["band:size=2,sampled=true", "block:size=3,sampled=true"],
    ["splitting:sigma=0.3", "splitting:sigma=0.7"],
    ["flow:sigma=0.01", "flow:sigma=0.1,law=uniform"],
]
SHAPE = (2, 6, 6)


def pictures(count: int) -> torch.Tensor:
    return torch.randint(1, 256, (count, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("texts", MIXTURES, ids=" | ".join)
def test_every_row_is_the_view_that_its_own_smoothing_makes(texts: list[str]) -> None:
    several, parts = Several(texts), [build(text) for text in texts]
    rows = 4 * len(texts)
    x = pictures(rows)
    words = several.random_words(x, torch.Generator().manual_seed(2))
    for inputs in (x, x[:1]):
        views = several.views(inputs, words, 255)
        for row in range(rows):
            part = parts[row % len(parts)]
            picture = inputs[row : row + 1] if len(inputs) > 1 else inputs
            own = part.views(picture, words[row : row + 1, : part.words(torch.Size(SHAPE), 255)], 255)
            assert torch.equal(views[row], own[0])


@pytest.mark.parametrize("texts", MIXTURES, ids=" | ".join)
def test_gradients_are_those_of_each_smoothing(texts: list[str]) -> None:
    several, parts = Several(texts), [build(text) for text in texts]
    rows = 2 * len(texts)
    x = (pictures(rows) / 255).requires_grad_()
    words = several.random_words(x.detach(), torch.Generator().manual_seed(2))
    views = several.differentiable(x, words)
    weights = torch.rand(views.shape, generator=torch.Generator().manual_seed(8))
    (found,) = torch.autograd.grad((views * weights).sum(), x)
    for row in range(rows):
        part, own = parts[row % len(parts)], x[row : row + 1].detach().requires_grad_()
        alone = part.differentiable(own, words[row : row + 1, : part.words(torch.Size(SHAPE), 255)])
        assert torch.equal(alone[0], views[row])
        (wanted,) = torch.autograd.grad((alone * weights[row : row + 1]).sum(), own)
        assert torch.allclose(found[row], wanted[0])


def test_rows_that_would_leave_an_input_with_two_smoothings_are_refused() -> None:
    several = Several(["gaussian:sigma=0.25", "gaussian:sigma=0.5"])
    x = pictures(3)
    with pytest.raises(BadInput, match="3 views of 2 smoothings by turns: give a multiple of 2 inputs, such as 4"):
        several.views(x, several.random_words(x), 255)


def test_what_cannot_be_learned_together_is_refused() -> None:
    with pytest.raises(BadInput, match="read inputs in different ways"):
        Several(["gaussian:sigma=0.25", "band:size=2"])
    with pytest.raises(BadInput, match="one network takes views of one shape"):
        Several(["gaussian:sigma=0.25", "ablation:retained=5"]).view_shape(torch.Size(SHAPE))
    with pytest.raises(BadInput, match="no smoothing is given"):
        Several([])


def test_nothing_is_certified_with_several() -> None:
    said = "votes on their views prove nothing together: give one of them, such as gaussian:sigma=0.25"
    text = "gaussian:sigma=0.25 | gaussian:sigma=0.5"
    for given in (text, Several(text.split(" | "))):
        with pytest.raises(BadInput, match=said):
            vb.SmoothedClassifier(torch.nn.Linear(2, 2), given, num_classes=2)
    with pytest.raises(BadInput, match="have no threat together"):
        Several(text.split(" | ")).threat  # noqa: B018


@pytest.mark.parametrize("read_one", [law, build])
def test_no_law_and_no_smoothing_is_read_from_several(read_one: Callable[[str], object]) -> None:
    with pytest.raises(BadInput, match="several smoothings are for training alone, .* such as gaussian:sigma=0.25"):
        read_one("gaussian:sigma=0.25 | gaussian:sigma=0.5")


def test_several_of_several_take_equal_turns() -> None:
    wanted = Several(["gaussian:sigma=0.25", "gaussian:sigma=0.5", "gaussian:sigma=1"])
    assert read([Several(["gaussian:sigma=0.25", "gaussian:sigma=0.5"]), "gaussian:sigma=1"]).parts == wanted.parts
    assert read(["gaussian:sigma=0.25 | gaussian:sigma=0.5", "gaussian:sigma=1"]).parts == wanted.parts


def test_a_text_a_list_and_objects_are_read_alike() -> None:
    text = "gaussian:sigma=0.25 | gaussian:sigma=0.5"
    wanted = read(text)
    assert wanted == read("gaussian:sigma=0.25|gaussian:sigma=0.5") == read([Gaussian(0.25), "gaussian:sigma=0.5"])
    assert str(wanted.spec) == text
    assert read("gaussian:sigma=0.25") == read(["gaussian:sigma=0.25", Gaussian(0.25)]) == Gaussian(0.25)
    own = Concave(lambda z: min(8 * z, 1), scale=4)  # has no text form
    assert read(own) is own
    assert read([own]) is own
    assert one_alone(own) is own
