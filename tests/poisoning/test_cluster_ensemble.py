"""Two clusters as features: the counts are those of one base classifier for each sample."""

from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from vauban.data import load
from vauban.errors import BadInput
from vauban.poisoning import ClusterEnsemble, train

DIGITS = load("mnist:split=test")


def ones_and_sevens(n: int) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.isin(DIGITS.labels, [1, 7])
    return DIGITS.images[chosen][:n], (DIGITS.labels[chosen][:n] == 7).astype(np.int64)


def test_clusters_count_like_one_base_classifier_a_sample(tmp_path: Path) -> None:
    x, y = ones_and_sevens(300)
    ensemble = ClusterEnsemble.fit(x, y)
    ensemble.save(tmp_path)
    loaded = ClusterEnsemble.load(tmp_path)
    test = ones_and_sevens(500)[0][300:]
    certs, truth = loaded.certify(test), ones_and_sevens(500)[1][300:]
    near = [
        [np.square(p / 255.0 - c.reshape(p.shape)).sum() for c in ensemble.centres] for p in np.concatenate([x, test])
    ]
    cluster = np.array([int(a > b) for a, b in near])
    for i in range(len(test)):
        votes = np.where(cluster[:300] == cluster[300 + i], y, 1 - y)
        assert certs.counts[i].tolist() == [int((votes == 0).sum()), int((votes == 1).sum())]
    assert len(set(certs.radius.tolist())) <= 2
    assert (certs.answer == truth).mean() > 0.9
    assert ensemble.weights_sha256 == loaded.weights_sha256
    order = np.random.default_rng(0).permutation(300)
    assert np.array_equal(ClusterEnsemble.fit(x[order], y[order]).table, ensemble.table)


def test_clusters_do_not_depend_on_the_number_of_threads() -> None:
    x, y = ones_and_sevens(900)
    with threadpool_limits(1):
        one = ClusterEnsemble.fit(x, y)
    with threadpool_limits(3):
        assert ClusterEnsemble.fit(x, y).weights_sha256 == one.weights_sha256


def test_clusters_count_copies_once() -> None:
    x, y = ones_and_sevens(60)
    repeated, labels = np.concatenate([x, x[:5], x[:5]]), np.concatenate([y, y[:5], 1 - y[:5]])
    assert ClusterEnsemble.fit(repeated, labels).table.tolist() == ClusterEnsemble.fit(x, y).table.tolist()


def test_clusters_refuse_inputs_of_another_type() -> None:
    x, y = ones_and_sevens(40)
    ensemble = ClusterEnsemble.fit(x, y)
    with pytest.raises(BadInput, match="trained on"):
        ensemble.certify(x.astype(np.float32))


def test_two_clusters_are_for_two_classes() -> None:
    with pytest.raises(BadInput, match=r"two classes.*--classes 1,7"):
        train("mnist:split=test", "ss-dpa:features=clusters", limit=40)
    with pytest.raises(BadInput, match="must be finite"):
        ClusterEnsemble.fit(np.full((3, 2), np.nan), [0, 1, 0])
