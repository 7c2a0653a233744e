"""Models as other libraries make them: outputs with logits, tuples, one logit, scikit-learn, NHWC, preprocessing inside."""

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import vauban as vb
from vauban.data import Dataset
from vauban.engine.network import scores_of
from vauban.errors import BadInput, ModelFailed

VIEWS = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(3))
TABLE = VIEWS.flatten(1)[:, :5]
SETTINGS: dict[str, Any] = {"n": 200, "alpha": 0.01, "seed": 1, "progress": False}


def scores(views: torch.Tensor) -> torch.Tensor:
    flat = views.flatten(1)
    return torch.stack([flat[:, 0], flat[:, 1], flat[:, 2]], dim=1)


class Output(OrderedDict[str, torch.Tensor]):
    """As Hugging Face's ModelOutput: a mapping with attributes."""

    @property
    def logits(self) -> torch.Tensor:
        return self["logits"]


class HuggingFaceLike(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config, self.dense = SimpleNamespace(num_labels=3), nn.Linear(192, 3)

    def forward(self, pixel_values: torch.Tensor) -> Output:
        logits = self.dense(pixel_values.flatten(1))
        return Output(hidden=logits * 2, logits=logits)


def fitted(kind: str) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC, LinearSVC

    x, y = TABLE.double().numpy(), np.array([0, 1, 2, 0, 1, 2])
    if kind == "pipeline":
        return make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    if kind == "two classes":
        return LinearSVC().fit(x, y > 0)
    return SVC(decision_function_shape=kind).fit(x, np.array([0, 1, 2, 3, 0, 1]))


@pytest.mark.parametrize(
    "returned",
    [
        lambda s: SimpleNamespace(logits=s),
        lambda s: {"loss": torch.zeros(()), "logits": s},
        lambda s: (s,),
        lambda s: (s, torch.zeros(6, 192)),
        lambda s: [torch.zeros(6, 192), s],
        lambda s: s.numpy(),
        lambda s: s.tolist(),
    ],
)
def test_scores_are_found_in_what_a_model_returns(returned: Any) -> None:
    expected = scores(VIEWS)
    found = scores_of(lambda views: returned(scores(views)), VIEWS, 3)
    assert torch.equal(found.float(), expected)
    assert torch.equal(vb.wrap(lambda views: returned(scores(views)), num_classes=3)(VIEWS).float(), expected)


def test_two_outputs_that_could_be_scores_are_refused_until_one_is_named() -> None:
    def model(views: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return scores(views), -scores(views)

    with pytest.raises(BadInput, match=r"of which 0 and 1 have the shape of scores: say which one votes.*output=0"):
        scores_of(model, VIEWS, 3)
    assert torch.equal(vb.wrap(model, output=1)(VIEWS), -scores(VIEWS))
    with pytest.raises(BadInput, match=r"output='logits': the model returned outputs 0, 1"):
        vb.wrap(model, output="logits")(VIEWS)


def test_a_hugging_face_model_states_its_classes_and_is_certified() -> None:
    smoothed = vb.SmoothedClassifier(HuggingFaceLike(), "gaussian:sigma=0.25")
    assert smoothed.num_classes == 3
    assert len(smoothed.certify(VIEWS, [0, 1, 2, 0, 1, 2], **SETTINGS)) == 6


def test_one_score_per_view_needs_its_threshold() -> None:
    def logit(views: torch.Tensor) -> torch.Tensor:
        return views.flatten(1)[:, :1] - 0.5

    with pytest.raises(
        BadInput, match=r"One score per view needs .* threshold=0\) for a logit, .*threshold=0.5\) for a prob"
    ):
        scores_of(logit, VIEWS, 2)
    assert torch.equal(vb.wrap(logit, threshold=0)(VIEWS).argmax(1), (VIEWS[:, 0, 0, 0] > 0.5).long())
    probability = vb.wrap(lambda views: logit(views).sigmoid()[:, 0], threshold=0.5)
    assert torch.equal(probability(VIEWS).argmax(1), (VIEWS[:, 0, 0, 0] > 0.5).long())
    assert vb.SmoothedClassifier(probability, "gaussian:sigma=1").num_classes == 2
    with pytest.raises(BadInput, match="is for models with one score per view"):
        vb.wrap(scores, threshold=0)(VIEWS)
    with pytest.raises(BadInput, match="num_classes=3 with threshold=0"):
        vb.wrap(logit, threshold=0, num_classes=3)


@pytest.mark.parametrize("kind", ["pipeline", "two classes", "ovr"])
def test_a_classifier_of_scikit_learn_votes_as_it_predicts(kind: str) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'vauban[sklearn]'")
    model = fitted(kind)
    votes = vb.wrap(model)(TABLE).argmax(1).numpy()
    assert np.array_equal(model.classes_[votes], model.predict(TABLE.double().numpy()))
    smoothed = vb.SmoothedClassifier(model, "gaussian:sigma=0.25")
    assert smoothed.num_classes == len(model.classes_)
    certs = smoothed.certify(TABLE, [0, 1] * 3, **SETTINGS)
    assert certs == vb.SmoothedClassifier(vb.wrap(model), "gaussian:sigma=0.25").certify(TABLE, [0, 1] * 3, **SETTINGS)


def test_what_a_classifier_of_scikit_learn_lacks_is_said() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'vauban[sklearn]'")
    from sklearn.linear_model import LinearRegression, LogisticRegression

    pipeline = fitted("pipeline")
    with pytest.raises(BadInput, match="LinearRegression is a regressor"):
        vb.wrap(LinearRegression())
    with pytest.raises(BadInput, match="has no classes_: fit it first"):
        vb.wrap(LogisticRegression())
    with pytest.raises(BadInput, match="mean is not for Pipeline"):
        vb.wrap(pipeline, mean=0.5)
    with pytest.raises(BadInput, match="gives 6 columns for 4 classes"):
        vb.wrap(fitted("ovo"))(TABLE)
    with pytest.raises(BadInput, match="method='predict_log'"):
        vb.wrap(pipeline, method="predict_log")
    with pytest.raises(BadInput, match=r"views have 10 features, .* fitted on 5: .* or give ablation null=mean"):
        vb.SmoothedClassifier(pipeline, "ablation:retained=2").certify(TABLE, [0] * 6, **SETTINGS)
    with pytest.raises(BadInput, match="no gradients pass through Pipeline of scikit-learn"):
        vb.wrap(pipeline)(TABLE.clone().requires_grad_())
    with pytest.warns(UserWarning, match="true labels must be positions from 0 to 1"):
        vb.wrap(LogisticRegression().fit(TABLE.double().numpy(), [1, 2] * 3))


def test_names_of_columns_are_given_to_a_pipeline_that_was_fitted_with_them() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install 'vauban[pandas]'")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'vauban[sklearn]'")
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    table = pandas.DataFrame(TABLE.double().numpy(), columns=list("abcde"))
    model = make_pipeline(make_column_transformer(("passthrough", ["d", "a"])), LogisticRegression())
    model.fit(table, [0, 1] * 3)
    assert np.array_equal(vb.wrap(model)(TABLE).numpy(), model.predict_proba(table))


def test_preprocessing_is_inside_the_model() -> None:
    def nhwc(pictures: torch.Tensor) -> torch.Tensor:
        assert pictures.shape == (6, 4, 4, 3)
        return pictures.mean(dim=(1, 2))

    wrapped = vb.wrap(nhwc, layout="nhwc", mean=(0.1, 0.2, 0.3), std=0.5, size=4, interpolation="nearest")
    small = VIEWS[:, :, ::2, ::2]
    by_hand = (small - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / 0.5
    assert torch.allclose(wrapped(VIEWS), by_hand.mean(dim=(2, 3)), atol=1e-6)


def test_a_model_of_keras_gets_arrays_with_channels_last() -> None:
    class Model:
        def __call__(self, pictures: Any) -> Any:
            assert isinstance(pictures, np.ndarray)
            return pictures.mean(axis=(1, 2))

    Model.__module__ = "keras.models"
    assert torch.allclose(vb.wrap(Model(), layout="nhwc")(VIEWS), VIEWS.mean(dim=(2, 3)), atol=1e-6)


def test_what_timm_states_is_used_when_asked_and_warned_about_when_not() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    net.pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25), "input_size": (3, 8, 8)}  # type: ignore[assignment]
    assert torch.equal(vb.wrap(net, preprocess="own")(VIEWS), net((VIEWS - 0.5) / 0.25))
    with pytest.warns(UserWarning, match=r"normalised by mean \(0.5, 0.5, 0.5\).*vb.wrap\(model, preprocess='own'\)"):
        vb.SmoothedClassifier(net, "gaussian:sigma=0.5", num_classes=3)
    with pytest.raises(BadInput, match="has no pretrained_cfg"):
        vb.wrap(nn.Linear(3, 2), preprocess="own")


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"num_classes": "3"}, "num_classes='3': a whole number is needed"),
        ({"output": 0.5}, "output=0.5"),
        ({"threshold": "high"}, "threshold='high'"),
        ({"layout": "hwc"}, "layout='hwc': 'nchw' or 'nhwc' is needed"),
        ({"mean": "grey"}, "mean='grey'"),
        ({"std": 0}, "std=0: finite numbers are needed, above zero"),
        ({"size": (3, 4, 5)}, "size="),
        ({"interpolation": "lanczos"}, "interpolation='lanczos'"),
        ({"preprocess": "timm"}, "preprocess='timm': 'own' is needed"),
        ({"method": "predict_proba"}, "is for scikit-learn"),
    ],
)
def test_wrong_options_are_answered(option: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        vb.wrap(scores, **option)


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"num_classes": "3"}, "num_classes='3': a whole number is needed, for example num_classes=10"),
        ({"device": 2.5}, "device=2.5: the name of a device is needed"),
        ({"device": "gpu"}, "device='gpu'"),
        ({"rows": "10"}, "rows='10': .* as a whole number"),
        ({"block": [1]}, r"block=\[1\]"),
        ({"precision": 16}, "precision=16: a name is needed, one of"),
        ({"backend": True}, "backend=True: a name is needed"),
        ({"input_range": 1}, r"input_range=1: .* such as \(0, 1\)"),
        ({"input_range": (1, 0)}, "input_range"),
        ({"depends": 3}, "depends=3"),
    ],
)
def test_arguments_of_a_wrong_type_are_answered(option: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        vb.SmoothedClassifier(scores, "gaussian:sigma=0.5", **{"num_classes": 3, **option})


def test_settings_of_a_wrong_type_are_answered() -> None:
    smoothed = vb.SmoothedClassifier(scores, "gaussian:sigma=0.5", num_classes=3, channels_last=True)
    for option in ({"stop": 3}, {"stop": None}, {"bounds": 2.5}, {"on": 4}, {"n": "100"}):
        with pytest.raises(BadInput, match="needed|text of the form"):
            smoothed.certify(TABLE, [0] * 6, **{**SETTINGS, **option})
    assert len(smoothed.certify(TABLE, [0] * 6, **SETTINGS)) == 6  # channels_last has no meaning for features


def test_views_twice_as_large_point_to_null_mean() -> None:
    convolution = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(72, 3))
    with pytest.raises(
        ModelFailed, match=r"views have 6 channels, .* wants 3 \(this smoothing shows .*, or give ablation null=mean\)"
    ):
        vb.SmoothedClassifier(convolution, "ablation:retained=20", num_classes=3).certify(VIEWS, [0] * 6, **SETTINGS)


def test_what_scikit_learn_says_inside_a_callable_is_explained() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'vauban[sklearn]'")
    model = fitted("pipeline")
    smoothed = vb.SmoothedClassifier(lambda v: model.predict_proba(v.numpy()), "ablation:retained=2", num_classes=3)
    with pytest.raises(ModelFailed, match=r"X has 10 features.*; views have 10 features, .*ablation null=mean"):
        smoothed.certify(TABLE, [0] * 6, **SETTINGS)


def test_objects_that_are_no_models_are_refused() -> None:
    for model in ("net", 3, nn.Linear, None):
        with pytest.raises(BadInput, match=r"cannot be called|a batch of views to scores is needed"):
            vb.wrap(model)


@pytest.mark.slow
def test_a_wrapped_module_is_run_by_a_backend() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'vauban[onnxruntime]'")
    net = vb.wrap(HuggingFaceLike(), mean=0.5, std=0.25)
    smoothed = vb.SmoothedClassifier(net, "gaussian:sigma=0.25", backend="onnxruntime", rows=20)
    assert len(smoothed.certify(VIEWS[:2], [0, 1], **SETTINGS)) == 2


def named_pipeline() -> Any:
    rooms = ("linear_model", "preprocessing", "pipeline")
    linear_model, preprocessing, pipeline = (pytest.importorskip(f"sklearn.{room}") for room in rooms)
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame(rng.normal(size=(60, 2)), columns=["width", "length"])
    kinds = np.where(table["width"] > table["length"], "wide", "long")
    return pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()).fit(table, kinds)


def table_of(columns: tuple[str, ...], classes: tuple[str, ...]) -> Dataset:
    values = np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32)
    return Dataset(values, np.array([0, 1, 0, 1]), 2, classes, "table", features=columns)


@pytest.mark.parametrize(
    ("columns", "classes", "sentence"),
    [
        (
            ("length", "width"),
            ("long", "wide"),
            "column 0 of the table is 'length', and the classifier was fitted on 'width'",
        ),
        (("width", "depth"), ("long", "wide"), "column 1 of the table is 'depth'"),
        (("width", "length"), ("wide", "long"), "name them in its order .classes=long/wide."),
    ],
)
def test_other_columns_and_classes_than_a_pipeline_was_fitted_on_are_refused(
    columns: tuple[str, ...], classes: tuple[str, ...], sentence: str
) -> None:
    smoothed = vb.SmoothedClassifier(named_pipeline(), "gaussian:sigma=0.5", input_range=None)
    smoothed.certify(table_of(("width", "length"), ("long", "wide")), n=100, alpha=0.01, seed=1)
    with pytest.raises(BadInput, match=sentence):
        smoothed.certify(table_of(columns, classes), n=100, alpha=0.01, seed=1)


@pytest.mark.parametrize("attacks", ["random:steps=5", ()])
def test_a_pipeline_is_attacked_without_gradients(attacks: Any) -> None:
    """Its scores are float64; where no attack is named, those that need gradients are left out."""
    smoothed = vb.SmoothedClassifier(named_pipeline(), "gaussian:sigma=0.5", input_range=None)
    data = table_of(("width", "length"), ("long", "wide"))
    found = vb.attack(smoothed, data, attacks=attacks, budget=1_000, views=8, votes=100, progress=False)
    assert len(found) == 4
