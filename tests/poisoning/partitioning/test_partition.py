"""Partitions: functions of a set, by content alone, whatever the order of the training data."""

import hashlib
import warnings

import numpy as np
import pytest

from vauban.data import load
from vauban.data.originals import Originals
from vauban.errors import BadInput
from vauban.poisoning.partitioning.partition import OF_ALL_INPUTS, Partition, TrainingSets, overlap_by_chance
from vauban.poisoning.partitioning.samples import NO_CLASS, content_keys, set_sha256
from vauban.poisoning.partitioning.stratified import stratified_order

RNG = np.random.default_rng(0)
PICTURES = RNG.integers(0, 256, size=(300, 1, 4, 4), dtype=np.uint8)
LABELS = RNG.integers(0, 3, size=300)
PARTITIONS = [
    Partition(7),
    Partition(7, by="pixel-sum"),
    Partition(7, by="sort"),
    Partition(7, by="stratified"),
    Partition(5, spread=3),
    Partition(5, by="sort", spread=2),
    Partition(5, by="stratified", spread=2),
]


def contents(partition: Partition, x: np.ndarray, y: np.ndarray) -> list[list[tuple[bytes, int]]]:
    """What every base classifier sees, in order."""
    return [[(x[i].tobytes(), int(y[i])) for i in part] for part in partition.members(x, y)]


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_shuffling_changes_nothing(partition: Partition) -> None:
    order = RNG.permutation(300)
    assert contents(partition, PICTURES, LABELS) == contents(partition, PICTURES[order], LABELS[order])
    assert set_sha256(PICTURES, LABELS) == set_sha256(PICTURES[order], LABELS[order])


def test_hashes_and_buckets_are_those_of_samples_taken_one_by_one() -> None:
    """Stored manifests hold these hashes; digests that end in zeros, repeated samples and labels that are no class included."""
    x, y = np.concatenate([PICTURES, PICTURES[:20]]), np.concatenate([LABELS, LABELS[:20] - 1])
    y[0] = NO_CLASS
    digests = [
        hashlib.blake2b(b"uint8 (1, 4, 4)\n" + row.tobytes(), digest_size=32, person=b"vauban samples").digest()
        for row in x
    ]
    for labels, name in ((y, b"labelled\n"), (None, b"unlabelled\n")):
        given = [0] * len(x) if labels is None else labels.tolist()
        pairs = sorted(zip(digests, given, strict=True))
        whole = b"".join(digest + label.to_bytes(8, "little", signed=True) for digest, label in pairs)
        assert set_sha256(x, labels) == hashlib.sha256(name + whole).hexdigest()
    words = [int.from_bytes(digest[:8], "little") for digest in digests]
    assert Partition(7, spread=3).buckets(x).tolist() == [word % 21 for word in words]


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_every_sample_is_seen_by_as_many_base_classifiers_as_the_spread(partition: Partition) -> None:
    members = partition.members(PICTURES, LABELS)
    assert len(members) == partition.models
    seen = np.bincount(np.concatenate(members), minlength=300)
    assert (seen == partition.spread).all()
    for part in contents(partition, PICTURES, LABELS):
        assert part == sorted(part)


@pytest.mark.parametrize("partition", [p for p in PARTITIONS if p.by not in OF_ALL_INPUTS], ids=str)
def test_one_sample_more_or_less_changes_the_parts_of_one_bucket(partition: Partition) -> None:
    whole = contents(partition, PICTURES, LABELS)
    for gone in range(20):
        less = contents(partition, np.delete(PICTURES, gone, axis=0), np.delete(LABELS, gone))
        changed = [i for i, (a, b) in enumerate(zip(whole, less, strict=True)) if a != b]
        bucket = int(partition.buckets(PICTURES[gone : gone + 1])[0])
        assert changed == [i for i in range(partition.models) if bucket in partition.buckets_of(i)]
        assert len(changed) == partition.spread


@pytest.mark.parametrize("partition", PARTITIONS, ids=str)
def test_a_label_moves_no_sample(partition: Partition) -> None:
    before = partition.members(PICTURES, LABELS)
    other = LABELS.copy()
    other[11] = (other[11] + 1) % 3
    after = partition.members(PICTURES, other)
    assert all(set(a.tolist()) == set(b.tolist()) for a, b in zip(before, after, strict=True))


def test_copies_stay_together_and_torn_labels_are_told() -> None:
    x = np.concatenate([PICTURES[:50], PICTURES[:10], PICTURES[:10]])
    y = np.concatenate([LABELS[:50], LABELS[:10], (LABELS[:10] + 1) % 3])
    for partition in (Partition(6), *(Partition(6, by=by) for by in ("sort", "stratified", "pixel-sum"))):
        with pytest.warns(UserWarning, match="30 training samples share"):
            parts = partition.members(x, y)
        for i in range(10):
            assert sum(bool({i, 50 + i, 60 + i} & set(part.tolist())) for part in parts) == 1
        order = RNG.permutation(len(x))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert contents(partition, x, y) == contents(partition, x[order], y[order])


def test_sorted_parts_are_as_even_as_can_be_on_digits() -> None:
    digits = load("mnist:split=test")
    sizes = [len(part) for part in Partition(300, by="sort").members(digits.images, digits.labels)]
    assert {33, 34} == set(sizes)
    hashed = [len(part) for part in Partition(300).members(digits.images, digits.labels)]
    assert np.std(hashed) < 1.3 * np.sqrt(10_000 / 300)


def slow_order(x: np.ndarray, block: int) -> list[int]:
    """The stratified order by Python's whole numbers, which are added without rounding on every processor."""
    values = [[float(v) if np.isfinite(v) else 0.0 for v in row.reshape(-1)] for row in x]
    largest = max(abs(v) for row in values for v in row) or 1.0
    kept = x.dtype.kind == "u" and largest <= 4096
    factor = max(1, int(255 // largest)) if kept else 1
    whole = [[int(v) * factor if kept else round(v / largest * 4096) for v in row] for row in values]

    def scaled(numbers: list[int]) -> list[int]:
        most = max(map(abs, numbers)) or 1
        return [round(number / most * 1024) for number in numbers]

    def along(rows: list[list[int]], direction: list[int]) -> list[int]:
        return [sum(a * b for a, b in zip(row, direction, strict=True)) for row in rows]

    def order(rows: list[int]) -> list[int]:
        half = -(-len(rows) // block) // 2 * block
        if not half:
            return rows
        columns = list(zip(*(whole[i] for i in rows), strict=True))
        middle = [round(sum(column) / len(rows)) for column in columns]
        centred = [[v - m for v, m in zip(whole[i], middle, strict=True)] for i in rows]
        across = [list(column) for column in zip(*centred, strict=True)]
        direction = scaled([sum(map(abs, column)) for column in across])
        for _ in range(30):
            direction = scaled(along(across, scaled(along(centred, direction))))
            if not any(direction):
                direction = scaled(max(centred, key=lambda row: sum(map(abs, row))))
        places = along([whole[i] for i in rows], direction)
        ordered = [i for _, i in sorted(zip(places, rows, strict=True))]
        return order(sorted(ordered[:half])) + order(sorted(ordered[half:]))

    return order(list(range(len(x))))


@pytest.mark.parametrize("kind", ["mirrored", "few values", "binary", "complementary", "normal", "huge", "NaN"])
def test_the_stratified_order_is_that_of_whole_numbers(kind: str) -> None:
    """Also where many coordinates are equal, as of mirrored pictures, whose order rounding would decide."""
    normal = RNG.normal(size=(90, 6))
    x = {
        "mirrored": np.concatenate([PICTURES[:60], PICTURES[:60, :, :, ::-1]]),
        "few values": RNG.choice([0, 0.1, 0.3], size=(90, 6)).astype(np.float32),
        "binary": RNG.integers(0, 2, size=(90, 6), dtype=np.uint8),
        "complementary": np.concatenate([PICTURES[:90], 255 - PICTURES[:90]], axis=1),
        "normal": normal,
        "huge": normal * 1e300,
        "NaN": np.where(RNG.random(normal.shape) < 0.1, np.nan, normal),
    }[kind]
    assert stratified_order(x, 7).tolist() == slow_order(x, 7)


def test_stratified_parts_are_even_and_have_more_kinds_of_digits_than_others() -> None:
    digits = load("mnist:split=test").select(limit=3_000)
    kinds = {}
    for by in ("hash", "sort", "stratified"):
        parts = Partition(150, by=by).members(digits.images, digits.labels)
        kinds[by] = np.mean([len(np.unique(digits.labels[part])) for part in parts])
        assert by == "hash" or {len(part) for part in parts} == {20}
    assert kinds["stratified"] > max(kinds["hash"], kinds["sort"]) + 0.15


def test_small_whole_numbers_and_complementary_columns_are_ordered_too() -> None:
    """The mean of bits is none of them, and the sum of all columns says nothing of samples whose columns add up."""
    group = RNG.integers(0, 2, 400)
    bits = (RNG.random((400, 60)) < np.where(group, 0.3, 0.1)[:, None]).astype(np.uint8)
    runs = group[stratified_order(bits, 20)].reshape(-1, 20)
    assert np.mean(np.maximum(runs.mean(1), 1 - runs.mean(1))) > 0.85
    one = RNG.integers(0, 256, 400, dtype=np.uint8)
    runs = one[stratified_order(np.stack([one, 255 - one], axis=1), 20)].reshape(-1, 20)
    assert np.ptp(runs, axis=1).max() < 40


def test_keys_of_originals_are_as_many_as_inputs() -> None:
    keys = Originals(np.arange(9), np.arange(9), np.zeros((9, 32), np.uint8))
    with pytest.raises(BadInput, match="9 keys of originals for 10 inputs"):
        Partition(3).members(PICTURES[:10], LABELS[:10], keys)


def test_each_run_of_the_stratified_order_is_alike() -> None:
    """Three groups far apart, of 40 each: every run of 40 is one of them, and so has every part one of each."""
    group = RNG.permutation(np.repeat([0, 1, 2], 40))
    x = np.array([[0, 0], [900, 0], [0, 1_000]])[group] + RNG.normal(size=(120, 2))
    order = stratified_order(x, 40)
    assert sorted(order.tolist()) == list(range(120))
    for i in range(0, 120, 40):
        assert len(set(group[order[i : i + 40]].tolist())) == 1
        assert order[i : i + 40].tolist() == sorted(order[i : i + 40].tolist())
    for part in Partition(40, by="stratified").members(x, group):
        assert sorted(group[part].tolist()) == [0, 1, 2]
    assert stratified_order(x[:0], 40).tolist() == []


@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e308])
def test_a_stratified_order_takes_any_numbers(odd: float) -> None:
    x = RNG.normal(size=(50, 3))
    x[7, 1] = odd
    assert sorted(stratified_order(x, 4).tolist()) == list(range(50))


def test_sorting_is_by_pixels() -> None:
    x = np.array([[[2, 0]], [[1, 255]], [[1, 7]], [[2, 0]]], dtype=np.uint8)
    assert Partition(3, by="sort").buckets(x).tolist() == [2, 1, 0, 2]
    assert np.argsort(content_keys(x), kind="stable").tolist() == [2, 1, 0, 3]


def test_pixel_sums_are_the_papers() -> None:
    assert Partition(7, by="pixel-sum").buckets(PICTURES).tolist() == [int(p.sum()) % 7 for p in PICTURES.astype(int)]


def test_a_hash_spreads_what_a_pixel_sum_does_not() -> None:
    x = np.eye(64, dtype=np.uint8).reshape(64, 1, 8, 8)
    assert len(set(Partition(16, by="pixel-sum").buckets(x).tolist())) == 1
    assert len(set(Partition(16).buckets(x).tolist())) > 10


def test_the_hash_is_pinned() -> None:
    """A folder trained today must mean the same tomorrow."""
    assert Partition(1000).buckets(np.arange(12, dtype=np.uint8).reshape(3, 1, 2, 2)).tolist() == PINNED
    assert Partition(3, spread=4).buckets_of(0) == PINNED_BUCKETS


PINNED = [867, 574, 565]
PINNED_BUCKETS = [0, 11, 9, 10]


def test_chances_of_f_3() -> None:
    drawn, dealt = overlap_by_chance(60_000, 50, 200)
    assert round(drawn, 3) == 0.154
    assert round(dealt, 3) == 0.167


def test_floats_are_hashed_and_refused_by_pixel_sum() -> None:
    x = PICTURES.astype(np.float32) / 255
    assert len(Partition(4).members(x, LABELS)) == 4
    with pytest.raises(BadInput, match="8-bit"):
        Partition(4, by="pixel-sum").buckets(x)


def test_nan_is_content_like_any_other() -> None:
    x = np.concatenate([PICTURES, np.full((1, 1, 4, 4), 7)]).astype(np.float32)
    x[-1, 0, 2, 2] = np.nan
    whole, clean = contents(Partition(6), x, np.append(LABELS, -5)), contents(Partition(6), x[:-1], LABELS)
    own = int(Partition(6).buckets(x[-1:])[0])
    assert [i for i in range(6) if whole[i] != clean[i]] == [own]
    assert [part for part in Partition(6).members(x[:0], []) if len(part)] == []


def test_parts_are_cut_on_demand() -> None:
    parts = TrainingSets(PICTURES, LABELS, [np.array([3, 1]), np.array([2])])
    x, y = parts[0]
    assert len(parts) == 2
    assert np.array_equal(x, PICTURES[[3, 1]])
    assert y.tolist() == LABELS[[3, 1]].tolist()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Partition(0), "above zero"),
        (lambda: Partition(3, by="label"), "not a known way to partition"),
        (lambda: Partition(3).members(PICTURES, None), "no labels"),
        (lambda: Partition(3).members(PICTURES, LABELS[:-1]), "one whole number each"),
        (lambda: Partition(3).buckets(np.zeros((2, 0))), "numbers"),
        (lambda: Partition(3).buckets(np.array([["a"], ["b"]])), "numbers"),
        (lambda: Partition.from_spec("hash:partitions=x"), "cannot be read"),
    ],
)
def test_bad_partitions_are_refused(make: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        make()  # type: ignore[operator]


def test_specs_come_back() -> None:
    for partition in PARTITIONS:
        assert Partition.from_spec(str(partition)) == partition
