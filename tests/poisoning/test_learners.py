"""Ensemble.fit with what people have: lists, tensors, data frames, scikit-learn classifiers and torch modules."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import vauban as vb
from vauban.errors import BadInput
from vauban.poisoning.learners import columns_of, to_array, warn_of_common_statistics

X, Y = make_classification(240, 6, n_informative=4, n_classes=3, class_sep=2.0, random_state=0)
TEST = X[:30] + 0.01
TREE = DecisionTreeClassifier(max_depth=3)


def module() -> torch.nn.Module:
    return torch.nn.Linear(6, 3)


def test_a_scikit_learn_classifier_is_enough() -> None:
    ensemble = vb.Ensemble.fit(X, Y, partitions=11, learner=TREE)
    certs = ensemble.certify(TEST, Y[:30])
    assert ensemble.models == 11
    assert ensemble.num_classes == 3
    assert np.array_equal(ensemble.predict(TEST), certs.answer)
    assert certs.clean_accuracy > 0.6
    assert np.nanmax(certs.radius) > 0


def test_the_same_votes_from_arrays_lists_tensors_and_frames() -> None:
    columns = [f"c{i}" for i in range(6)]
    frame = pd.DataFrame(X, columns=columns)
    given = {
        "array": (X, Y, TEST),
        "lists": (X.tolist(), Y.tolist(), TEST.tolist()),
        "tensors": (torch.from_numpy(X), torch.from_numpy(Y), torch.from_numpy(TEST)),
        "frames": (frame, pd.Series(Y), pd.DataFrame(TEST, columns=columns)),
        "column": (frame, pd.DataFrame({"y": Y}), TEST),
    }
    votes = {
        name: vb.Ensemble.fit(x, y, partitions=5, learner=TREE).certify(asked).counts
        for name, (x, y, asked) in given.items()
    }
    assert all(np.array_equal(counts, votes["array"]) for counts in votes.values())


def test_a_frame_with_other_columns_or_words_is_refused() -> None:
    ensemble = vb.Ensemble.fit(pd.DataFrame(X[:, :2], columns=["a", "b"]), Y, partitions=3, learner=TREE)
    with pytest.raises(BadInput, match="in this order"):
        ensemble.predict(pd.DataFrame(X[:, :2], columns=["b", "a"]))
    with pytest.raises(BadInput, match="town hold no numbers"):
        vb.Ensemble.fit(pd.DataFrame({"a": [1.0, 2.0], "town": ["x", "y"]}), [0, 1], partitions=2, learner=TREE)
    assert columns_of([1]) is None
    assert to_array([[True, False]]).dtype == np.uint8


def test_frames_of_several_kinds_of_numbers_and_short_floats_are_numbers() -> None:
    mixed = pd.DataFrame({"a": X[:, 0], "flag": Y == 1, "n": pd.array(Y, dtype="Int64")})
    assert to_array(mixed).dtype == np.float64
    assert np.array_equal(to_array(mixed), np.stack([X[:, 0], Y == 1, Y], axis=1))
    missing = to_array(pd.DataFrame({"n": pd.array([1, None], dtype="Int64")}))
    assert np.array_equal(missing, [[1], [np.nan]], equal_nan=True)
    half = torch.tensor(X).bfloat16()
    ensemble = vb.Ensemble.fit(half, pd.Series(Y, dtype="Int64"), partitions=3, learner=TREE)
    assert np.array_equal(ensemble.predict(half[:5]), ensemble.predict(half[:5].float().numpy()))


def test_what_is_no_table_of_numbers_is_refused_in_words() -> None:
    from scipy.sparse import csr_matrix

    with pytest.raises(BadInput, match="toarray"):
        vb.Ensemble.fit(csr_matrix(X), Y, partitions=3, learner=TREE)
    with pytest.raises(BadInput, match="reshape"):
        vb.Ensemble.fit(X[:, 0], Y, partitions=3, learner=TREE)
    with pytest.raises(BadInput, match="1 score a sample"):
        vb.Ensemble.fit(X.astype(np.float32), Y, partitions=3, learner=torch.nn.Linear(6, 1))


def test_inputs_of_another_type_count_only_if_every_value_is_the_same() -> None:
    whole = np.arange(40, dtype=np.float32).reshape(20, 2)
    ensemble = vb.Ensemble.fit(whole, [0, 1] * 10, partitions=3, learner=TREE)
    assert np.array_equal(ensemble.predict(whole.astype(int).tolist()), ensemble.predict(whole))
    with pytest.raises(BadInput, match="float32"):
        ensemble.predict(whole.astype(np.float64) + 1e-12)


def test_modules_are_trained_as_they_are_or_built_anew_and_loaded_with_the_same_one(tmp_path: Path) -> None:
    torch.manual_seed(0)
    given = module()
    before = {name: value.clone() for name, value in given.state_dict().items()}
    copies = vb.Ensemble.fit(X.astype(np.float32), Y, partitions=1, learner=given)
    built = vb.Ensemble.fit(X.astype(np.float32), Y, partitions=1, learner=module)
    assert copies.num_classes == built.num_classes == 3
    assert all(torch.equal(value, before[name]) for name, value in given.state_dict().items())
    assert "start_sha256" in copies.manifest["trainer"]
    assert "start_sha256" not in built.manifest["trainer"]
    for ensemble, learner in ((copies, given), (built, module)):
        folder = tmp_path / learner.__class__.__name__
        ensemble.save(folder)
        again = vb.Ensemble.load(folder, learner=learner)
        assert np.array_equal(again.predict(TEST.astype(np.float32)), ensemble.predict(TEST.astype(np.float32)))
    with pytest.raises(BadInput, match="this learner is"):
        vb.Ensemble.load(tmp_path / "Linear", learner=module)


def test_the_text_of_a_recipe_is_a_learner() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (40, 1, 28, 28), dtype=np.uint8)
    ensemble = vb.Ensemble.fit(
        pictures, [0, 1] * 20, partitions=2, learner="tiny-cnn:steps=2,views=1,batch=8", num_classes=2
    )
    assert ensemble.predict(pictures[:3]).shape == (3,)


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (LinearRegression(), "LinearRegression is no classifier"),
        (make_pipeline(StandardScaler(), Ridge()), "Pipeline is no classifier"),
        (KMeans(2), "KMeans is no classifier"),
        (DecisionTreeClassifier, "is a class"),
        (None, "learner=None"),
        (3, "learner=3"),
        (lambda: 3, "no torch module"),
    ],
)
def test_what_is_no_classifier_is_refused_at_fit(learner: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        vb.Ensemble.fit(X, Y, partitions=4, learner=learner)


def test_labels_that_are_no_classes_are_refused_in_words() -> None:
    with pytest.raises(BadInput, match="as in a regression"):
        vb.Ensemble.fit(X, Y + 0.5, partitions=4, learner=TREE)
    with pytest.raises(BadInput, match="fixed beforehand"):
        vb.Ensemble.fit(X, ["cat", "dog"] * 120, partitions=4, learner=TREE)
    with pytest.raises(BadInput, match="say once how many parts"):
        vb.Ensemble.fit(X, Y, learner=TREE)
    with pytest.raises(BadInput, match="different lengths"):
        vb.Ensemble.fit([[1.0], [1.0, 2.0]], [0, 1], partitions=2, learner=TREE)


def test_one_label_that_is_no_class_still_gives_an_ensemble() -> None:
    odd = Y.astype(float)
    odd[0] = np.nan
    with pytest.warns(UserWarning, match="cannot be trained"):
        ensemble = vb.Ensemble.fit(X, odd, partitions=6, learner=TREE)
    assert len(ensemble.failed) == 1


def test_samples_scaled_by_the_whole_training_set_are_warned_of() -> None:
    for scaler, words in ((StandardScaler(), "mean 0 and deviation 1"), (MinMaxScaler(), "range from 0 to 1")):
        with pytest.warns(UserWarning, match=words):
            vb.Ensemble.fit(scaler.fit_transform(X), Y, partitions=3, learner=TREE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inside = make_pipeline(StandardScaler(), LogisticRegression())
        vb.Ensemble.fit(X, Y, partitions=3, learner=inside)
        warn_of_common_statistics((X > 0).astype(float))
