"""The training settings that the papers print, and what was chosen where they leave something open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from vauban.training.recipe import Recipe


@dataclass(frozen=True)
class NamedRecipe:
    """The settings of one training, where they are printed, and what they are for.

    `smoothing`: the one the paper trains for; None where it trains for many, so that the user gives it. `note`: what the paper
    leaves open or contradicts, what was chosen and why. `missing`: what `train` lacks to run this recipe; "" if it runs.
    """

    name: str
    source: str
    data: str
    model: str
    smoothing: str | None
    recipe: Recipe
    note: str = ""
    missing: str = ""


PRINTED: list[NamedRecipe] = []


def _add(
    name: str,
    source: str,
    data: str,
    model: str,
    smoothing: str | None,
    recipe: Recipe,
    *notes: str,
    missing: str = "",
) -> NamedRecipe:
    PRINTED.append(NamedRecipe(name, source, data, model, smoothing, recipe, " ".join(notes), missing))
    return PRINTED[-1]


def _variant(of: NamedRecipe, name: str, source: str, note: str, **other: Any) -> NamedRecipe:
    """Add `of` under another name; `other` fields replace its own, and `note` comes before its note."""
    PRINTED.append(replace(of, name=name, source=source, note=f"{note} {of.note}", **other))
    return PRINTED[-1]


def _sgd(epochs: int, batch: int, lr: float, weight_decay: float, schedule: str, **other: Any) -> Recipe:
    """Momentum 0.9 and no warm-up, as everywhere in these papers."""
    given = {"momentum": 0.9, "nesterov": False, "warmup": 0.0, **other}
    return Recipe(
        epochs=epochs, batch=batch, lr=lr, weight_decay=weight_decay, optimizer="sgd", schedule=schedule, **given
    )


def _scaled(mean: Iterable[float], std: Iterable[float]) -> str:
    """The parameters of a network's first layer, (x - mean) / std."""
    return ",".join(f"{key}={'/'.join(f'{v:.6g}' for v in values)}" for key, values in (("mean", mean), ("std", std)))


_CIFAR_MEAN, _CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
_IMAGENET_SCALED = _scaled((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_MNIST_MEAN = 0.1307
_CIFAR_MASS, _MNIST_MASS = 32 * 32 * sum(_CIFAR_MEAN), 28 * 28 * _MNIST_MEAN
_TENTH_AFTER_200 = "step:at=200,factor=0.1"
_PLAIN = "Neither Nesterov's momentum nor a warm-up is printed: none is used."


# Randomized ablation: [Levine2023] chapter 2 and appendix A, [Levine2020], [Jia2022]

_SAME_PIXELS = "One set of pixels is ablated for the whole batch ([Levine2023] 2.2.2)."
_a2 = _add(
    "table-A.2",
    "[Levine2023] Table A.2",
    "mnist",
    "cnn",
    "ablation:retained=45",
    _sgd(400, 128, 0.01, 0.0, _TENTH_AFTER_200, masks="batch"),
    _SAME_PIXELS,
    "5 to 100 pixels are tried; 40 and 45 have the largest median radius (Table 2.1).",
    _PLAIN,
)
_a3 = _add(
    "table-A.3",
    "[Levine2023] Table A.3",
    "cifar10",
    "resnet18",
    "ablation:retained=75",
    _sgd(400, 128, 0.01, 5e-4, _TENTH_AFTER_200, augment="crop-flip", masks="batch"),
    _SAME_PIXELS,
    "25 to 150 pixels are tried; 2.4.2 calls 75 optimal.",
    _PLAIN,
)
_a4 = _add(
    "table-A.4",
    "[Levine2023] Table A.4",
    "imagenet",
    "resnet50",
    "ablation:retained=1000",
    _sgd(36, 256, 0.1, 1e-4, "step:at=21/31,factor=0.1", augment="resized-crop", masks="batch"),
    _SAME_PIXELS,
    "500, 1,000 and 2,000 pixels are tried; 1,000 has the largest median radius (Table 2.6).",
    _PLAIN,
)
_variant(
    _a3,
    "table-2.5",
    "[Levine2023] Table 2.5",
    "ResNet-50 in place of ResNet-18; its settings are not printed, so those of Table A.3 are used.",
    model="resnet50-cifar",
)
_variant(
    _a2,
    "table-2.8-mnist",
    "[Levine2023] Table 2.8",
    "NULL is the mean training pixel, 0.1307. No other settings are printed, so those of Table A.2 are used.",
    smoothing=f"ablation:retained=45,null=mean,mean={_MNIST_MEAN}",
)
_variant(
    _a3,
    "table-2.8-cifar",
    "[Levine2023] Table 2.8",
    "NULL is the mean training pixel, channel by channel. No other settings are printed, so those of Table A.3 are used.",
    smoothing=f"ablation:retained=75,null=mean,mean={'/'.join(map(str, _CIFAR_MEAN))}",
)
_variant(_a2, "003-mnist", "[Levine2020] Table 10", "The numbers of Table A.2 of [Levine2023].")
_variant(_a3, "003-cifar", "[Levine2020] Table 11", "The numbers of Table A.3 of [Levine2023].")
_variant(_a4, "003-imagenet", "[Levine2020] Table 12", "The numbers of Table A.4 of [Levine2023].")
_JIA_2022 = (
    "[Jia2022] prints no training settings and names the published code of [Levine2020]: its Table {} is used. "
    "Unless another is named, {} pixels are kept."
)
_variant(
    _a3,
    "000-cifar",
    "[Jia2022] 3.1",
    _JIA_2022.format(11, 50),
    model="resnet110",
    smoothing="ablation:retained=50",
)
_variant(_a4, "000-imagenet", "[Jia2022] 3.1", _JIA_2022.format(12, "1,000"))


# Gaussian and Laplace noise: [Jia2020], [Teng2020], both after [Cohen2019]

_COHEN = (
    "Optimizer, epochs, batch, rates, weight decay, augmentation and normalisation are those of the training script published "
    "with [Cohen2019]. It draws noise for each picture, although [Levine2023] B.2 says once per batch."
)
_cohen = _sgd(90, 400, 0.1, 1e-4, "step:at=30/60,factor=0.1", augment="crop-flip")
_JIA_2020 = "[Jia2020] trains nothing: it certifies the published networks of [Cohen2019], at sigma 0.5 unless another is named."
_c1 = _add(
    "001-cifar",
    "[Jia2020] 4.1",
    "cifar10",
    f"resnet110:{_scaled(_CIFAR_MEAN, _CIFAR_STD)}",
    "gaussian:sigma=0.5",
    _cohen,
    _JIA_2020,
    _COHEN,
)
_c2 = _add(
    "001-imagenet",
    "[Jia2020] 4.1",
    "imagenet",
    f"resnet50:{_IMAGENET_SCALED}",
    "gaussian:sigma=0.5",
    replace(_cohen, augment="resized-crop"),
    _JIA_2020,
    _COHEN,
)
_TENG = (
    "[Teng2020] prints the networks and the standard deviations 0.25, 0.5 and 1, and follows [Cohen2019] in all else."
)
_STEP = (
    "The step a is called a constant and not printed. 0.005 is ours: on 3,072 numbers its L2 norm is 0.28, near the smallest "
    "attack, 0.25, in the training of Salman et al. (2019), which the paper names as its source."
)
_OTHER_NOISE = "The baseline of Figures 7 and 8: Gaussian noise of the same standard deviation as the Laplace noise."
_type2 = replace(_cohen, loss="type2:step=0.005")
_add("002-type1-cifar", "[Teng2020] 5.1", "cifar10", _c1.model, None, _cohen, _TENG, _COHEN)
_add("002-type1-imagenet", "[Teng2020] 5.1", "imagenet", _c2.model, None, _c2.recipe, _TENG, _COHEN)
_add("002-type2-cifar", "[Teng2020] 5.1", "cifar10", _c1.model, None, _type2, _STEP, _TENG, _COHEN)
_add("002-gaussian-cifar", "[Teng2020] 5.2", "cifar10", _c1.model, None, _cohen, _OTHER_NOISE, _TENG, _COHEN)
_add("002-gaussian-imagenet", "[Teng2020] 5.2", "imagenet", _c2.model, None, _c2.recipe, _OTHER_NOISE, _TENG, _COHEN)


# Splitting and uniform noise, variable widths, denoisers: [Levine2023] chapters 3 and 4 and appendices B and C

_YANG = (
    "Momentum 0.9 in Nesterov's form, weight decay 0.0001 and augmentation are not printed: they are those of the training "
    "script published with [Yang2020], which the thesis follows. Noise is drawn for each picture (B.2)."
)
_b1 = _add(
    "table-B.1-cifar",
    "[Levine2023] Table B.1",
    "cifar10",
    "wideresnet40-2",
    None,
    _sgd(120, 64, 0.1, 1e-4, "cosine", nesterov=True, augment="crop-flip"),
    "For uniform (the baseline), splitting:sampled=true and splitting; 15 values of sigma from 0.15 to 3.5 (Table 3.1).",
    "The text of [Yang2020] says batch 128, its code 64: the thesis takes 64 (footnote of B.2).",
    _YANG,
)
_b2 = _add(
    "table-B.1-imagenet",
    "[Levine2023] Table B.1",
    "imagenet",
    "resnet50",
    None,
    _sgd(30, 64, 0.1, 1e-4, "cosine", nesterov=True, augment="resized-crop"),
    "For uniform (the baseline) and splitting, at three values of sigma (Figure 3.5).",
    _YANG,
)
_SIX = "The stability weight is not printed: 6, as in the script of [Yang2020]."
_b1_stable, _b2_stable = (replace(one.recipe, loss="stability:weight=6") for one in (_b1, _b2))
_variant(_b1, "table-B.1-stability-cifar", "[Levine2023] 3.4, Table B.1", _SIX, recipe=_b1_stable)
_variant(_b2, "table-B.1-stability-imagenet", "[Levine2023] 3.4, Table B.1", _SIX, recipe=_b2_stable)
_LIKE_3 = (
    '4.4 says "largely the same as used in Chapter 3" and prints no number: Table B.1 is used. For fractional, and for the '
    "baseline splitting"
)
_SCALES = f"{_LIKE_3}; p 1/2 and 1/3, scale 1, 3, 6, 9, 12, 15 and 18 (Table 4.1), up to 30 in C.9."
_FEWER = f"{_LIKE_3}; p 1/2, scale 6, 12 and 18 (Table C.7)."
_add("chapter-4-cifar", "[Levine2023] 4.4", "cifar10", _b1.model, None, _b1.recipe, _SCALES, _YANG)
_add("chapter-4-stability-cifar", "[Levine2023] 4.4", "cifar10", _b1.model, None, _b1_stable, _SCALES, _SIX, _YANG)
_add("chapter-4-imagenet", "[Levine2023] 4.4", "imagenet", _b2.model, None, _b2.recipe, _FEWER, _YANG)
_DENOISERS = (
    'B.4 prints no numbers: it takes "all default parameters" of the code of Salman et al. (2020), which are these, with a DnCNN '
    "of 17 layers and width 64. That code uses Adam; AdamW, used here, keeps weight decay out of the gradient's moments."
)
_denoiser = Recipe(
    epochs=90,
    batch=256,
    lr=1e-3,
    weight_decay=1e-4,
    optimizer="adamw",
    schedule="step:at=30/60,factor=0.1",
    warmup=0.0,
    augment="crop-flip",
)
_add(
    "section-B.4-stability",
    "[Levine2023] B.4 (1)",
    "cifar10",
    "dncnn",
    None,
    replace(_denoiser, loss="denoised-stability"),
    "Cross-entropy of a fixed classifier on the denoised view against its own label for the clean picture; give it as "
    "--classifier.",
    _DENOISERS,
)
_add(
    "section-B.4-mse",
    "[Levine2023] B.4 (2)",
    "cifar10",
    "dncnn",
    None,
    replace(_denoiser, loss="mse"),
    "Mean squared error between the denoised view and the picture; the classifier is trained on clean pictures, give it as "
    "--classifier. Without it the file holds the denoiser alone.",
    _DENOISERS,
)
_add(
    "section-B.4-retrained",
    "[Levine2023] B.4 (3)",
    "cifar10",
    "dncnn > wideresnet40-2",
    None,
    _b1.recipe,
    "A denoiser of section-B.4-mse, trained without --classifier and given as --init, in front of a new classifier, both trained "
    "on views. The settings of that training are not printed, so those of Table B.1 are used.",
    _YANG,
)


# Flows: [Levine2023] chapter 5 and appendix D

_SAME_NOISE = "One draw of noise for the whole batch (D.2)."
_MASS = (
    "Views have mass 1, so the network's first layer multiplies by the mean mass of a training picture; the published code "
    "multiplies by the picture's own mass, which a view does not carry."
)
_d1 = _add(
    "table-D.1",
    "[Levine2023] Table D.1",
    "mnist",
    f"wong-mnist:std={1 / _MNIST_MASS:.6g}",
    "flow:sigma=0.01,ground=l2",
    _sgd(200, 128, 0.001, 5e-4, "constant", masks="batch"),
    _SAME_NOISE,
    "7 values of sigma from 0.005 to 0.5 are tried; 0.01 is the best (Table 5.1).",
    _MASS,
    _PLAIN,
)
_add(
    "table-D.1-laplace",
    "[Levine2023] 5.5.1, Table D.1",
    "mnist",
    "wong-mnist",
    None,
    _d1.recipe,
    "The baseline of Table 5.1. Its sigma is for pictures of mass 1, while laplace adds noise to pixels in [0, 1]: for a picture "
    "of mass m, the table's sigma is sigma * m here, and m is 102 on average.",
    _SAME_NOISE,
    _PLAIN,
)
_d2 = _add(
    "table-D.2",
    "[Levine2023] Table D.2",
    "cifar10",
    f"resnet18:{_scaled([m / _CIFAR_MASS for m in _CIFAR_MEAN], [s / _CIFAR_MASS for s in _CIFAR_STD])}",
    "flow:sigma=0.0002,ground=l2",
    _sgd(200, 128, 0.01, 5e-4, "constant", augment="crop-flip", masks="batch"),
    "The table contradicts itself: 200 epochs, and rates for epochs 1 to 400. Chosen: 200 epochs, all at the first rate, since "
    "the published script keeps weights after epoch 200 only. (Its default rate is 0.001, which the table has for epochs 201 to "
    "400.) table-D.2-400 is the other reading.",
    _SAME_NOISE,
    "5 values of sigma from 0.00005 to 0.001 are tried; 0.0002 has the largest median radius (Table 5.2).",
    _MASS,
    _PLAIN,
)
_variant(
    _d2,
    "table-D.2-400",
    "[Levine2023] Table D.2",
    "The whole schedule, 400 epochs.",
    recipe=replace(_d2.recipe, epochs=400, schedule=_TENTH_AFTER_200),
)


# Patches: [Levine2023] chapter 6 and appendix E

_ONE_PLACE = "One band or block is kept for the whole batch (6.2.2.1)."
_add(
    "table-E.10-mnist",
    "[Levine2023] Table E.10",
    "mnist",
    "cnn",
    "band:size=2,threshold=0.3",
    _sgd(400, 128, 0.01, 5e-4, _TENTH_AFTER_200, masks="batch"),
    _ONE_PLACE,
    "Also for rows, blocks and several of them (E.3, E.4). Size 2 and threshold 0.3 are the best (Figure 6.5).",
    _PLAIN,
)
_e10 = _add(
    "table-E.10-cifar",
    "[Levine2023] Table E.10",
    "cifar10",
    "resnet18",
    "band:size=4,threshold=0.3",
    _sgd(350, 128, 0.1, 5e-4, "step:at=150/250,factor=0.1", augment="crop-flip", masks="batch"),
    _ONE_PLACE,
    "Also for blocks. Size 4 and threshold 0.3 are the best (Figure 6.5).",
    _PLAIN,
)
_add(
    "table-E.10-imagenet",
    "[Levine2023] Table E.10",
    "imagenet",
    "resnet50",
    "band:size=25,threshold=0.2",
    _sgd(60, 196, 0.1, 5e-4, "step:at=20/40,factor=0.1", augment="flip", masks="batch"),
    _ONE_PLACE,
    "Size 25 and threshold 0.2 (6.3).",
    _PLAIN,
)
_add(
    "section-E.7-baseline",
    "[Levine2023] E.7",
    "cifar10",
    "resnet18",
    None,
    _e10.recipe,
    "The undefended baseline, trained on whole pictures with the settings of the column-smoothed network.",
    _PLAIN,
    missing="training on whole pictures, without a smoothing",
)
