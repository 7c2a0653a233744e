"""Lines of several runs: accuracy at every radius, labels that differ, envelopes, attacks, CSV and LaTeX."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import vauban as vb
from vauban.certificates import Certificates, derive
from vauban.errors import BadInput
from vauban.report.comparing import compared, difference, table_rows
from vauban.report.lines import Line, best_of, line_of_attack, line_of_claims, read_lines
from vauban.report.plots import csv_text, draw, draw_histogram, latex, write_all
from vauban.report.trainings import Spread, over_trainings
from vauban.report.trainings import as_json as trainings_json
from vauban.report.trainings import table_rows as trainings_table
from vauban.reproduce.comparing import attacked


def claims(radii: list[float], law: str = "gaussian:sigma=0.5", wrong: int = 0, alpha: float = 0.001) -> Certificates:
    counts = np.tile([900, 60, 40], (len(radii), 1))
    truth = [1 if i < wrong else 0 for i in range(len(radii))]
    r = np.array(radii)
    made = derive(counts, [0] * len(radii), law, alpha=alpha, truth=truth)
    return replace(made, radius=r, abstained=np.isnan(r))


def attack_folder(path: Path, threat: str, rows: list[tuple[int, int, str]]) -> Path:
    path.mkdir()
    (path / "attack.json").write_text(json.dumps({"threat": threat}))
    lines = [f"{i},{label},{truth},,{distance},pgd,1,0,0,9" for i, (label, truth, distance) in enumerate(rows)]
    header = "index,label,truth,radius,distance,attack,answer,abstained,refuted,views"
    (path / "table.csv").write_text("\n".join([header, *lines, ""]))
    return path


def test_a_line_is_the_accuracy_at_every_radius() -> None:
    certs = claims([0.3, 0.1, np.nan, 0.7, 0.3], wrong=1)
    line = line_of_claims(certs, {})
    for r in [0.0, 0.05, 0.1, 0.1000001, 0.3, 0.31, 0.7, 0.8]:
        assert line.at(r) == certs.accuracy(r)


def test_the_best_line_is_the_largest_everywhere() -> None:
    lines = [line_of_claims(claims(radii), {}) for radii in ([0.1, 0.1, 0.9], [0.5, 0.5, np.nan], [0.2, 0.3, 0.4])]
    best = best_of(lines)
    for r in np.linspace(0, 1, 201):
        assert best.at(r) == max(line.at(r) for line in lines)


@pytest.mark.parametrize(
    ("threat", "at"),
    [
        ("l2", {0.0: 0.75, 0.5: 0.75, 0.51: 0.5, 9.0: 0.5}),  # open ball: found at 0.5, it counts only beyond 0.5
        ("l0", {0: 0.75, 2: 0.75, 3: 0.5, 4: 0.5}),  # closed ball: found at 3 pixels, it counts at 3
    ],
)
def test_an_attack_counts_from_its_distance_on(tmp_path: Path, threat: str, at: dict[float, float]) -> None:
    near = "0.5" if threat == "l2" else "3"
    line = line_of_attack(attack_folder(tmp_path / "a", threat, [(1, 1, near), (1, 1, ""), (1, 1, ""), (0, 1, "")]))
    assert {r: line.at(r) for r in at} == at


def test_lines_of_two_runs_have_different_labels() -> None:
    same = claims([0.3, 0.1])
    labels = [line.label for line in read_lines([same, same, claims([0.3, 0.1], alpha=0.01)], {})]
    assert len(set(labels)) == 3
    told = [line.label for line in read_lines([claims([0.1]), claims([0.1], "gaussian:sigma=1")], {})]
    assert told == ["gaussian:sigma=0.5", "gaussian:sigma=1.0"]
    with pytest.raises(BadInput, match="give one for each, all different"):
        read_lines([same, same], {}, ["a", "a"])


def test_an_attack_beside_a_run_says_how_many_inputs_it_is_about(tmp_path: Path) -> None:
    folder = attack_folder(tmp_path / "mine", "l2", [(1, 1, "0.5"), (1, 1, "")])
    labels = [line.label for line in read_lines([claims([0.3, 0.1, 0.7]), folder], {})]
    assert labels == ["gaussian:sigma=0.5", "mine, 2 inputs under attack"]


def test_inputs_that_a_budget_left_out_do_not_count_as_withstanding(tmp_path: Path) -> None:
    folder = attack_folder(tmp_path / "mine", "l2", [(1, 1, "0.5"), (1, 1, "0"), (1, 1, ""), (1, 1, "")])
    table = (folder / "table.csv").read_text().splitlines()
    (folder / "table.csv").write_text("\n".join([*table[:3], "2,1,1,,,,,,,", "3,1,1,,,,,,,", ""]))
    line = line_of_attack(folder)
    assert [line.at(r) for r in (0.0, 0.5, 0.6)] == [0.5, 0.5, 0.0]  # one of the two is wrong without any change
    assert line.facts["folder"] == "mine, 2 of 4 inputs under attack"
    assert attacked(folder, "under-attack", 0.0)[0] == 50.0
    assert attacked(folder, "attack-median", 0.0)[0] == 0.25
    (folder / "table.csv").write_text("\n".join([table[0], "0,1,1,,,,,,,", ""]))
    assert attacked(folder, "under-attack", 0.0) == (None, 0.0)
    with pytest.raises(BadInput, match="larger --budget"):
        line_of_attack(folder)


def test_runs_of_different_threats_share_no_picture() -> None:
    with pytest.raises(BadInput, match="different threats"):
        vb.plot(claims([0.3]), claims([2.0], "ablation:retained=45,features=784"))


def test_csv_and_latex_hold_what_is_drawn(tmp_path: Path) -> None:
    lines = read_lines([claims([0.25, 0.5, np.nan, 1.0]), claims([0.1, 0.2, 0.3, 0.4], "gaussian:sigma=0.25")], {})
    rows = list(csv.DictReader(io.StringIO(csv_text(lines))))
    first = [(float(row["radius"]), float(row["accuracy"])) for row in rows if row["line"] == lines[0].label]
    assert first == [(0.0, 0.75), (0.25, 0.75), (0.5, 0.5), (1.0, 0.25)]
    table = latex(lines, [0, 0.5])
    assert r"gaussian:sigma=0.5 & 75.00 & 50.00 \\" in table
    pytest.importorskip("matplotlib")
    written = write_all(draw(lines, "title"), lines, tmp_path / "figure")
    assert [path.suffix for path in written] == [".png", ".svg", ".csv", ".tex"]
    svg = (tmp_path / "figure.svg").read_bytes()
    write_all(draw(lines, "title"), lines, tmp_path / "figure")
    assert (tmp_path / "figure.svg").read_bytes() == svg


def test_many_corners_are_thinned_to_the_safe_side() -> None:
    random = np.random.default_rng(1)
    certs = claims(np.sort(random.random(3000)).tolist())
    line = line_of_claims(certs, {"smoothing": "s"})
    rows = list(csv.DictReader(io.StringIO(csv_text([line]))))
    assert len(rows) <= 400
    corners, kept = (np.array([float(row[name]) for row in rows]) for name in ("radius", "accuracy"))
    for r in random.random(200):
        drawn = kept[np.searchsorted(corners, r)] if r <= corners[-1] else 0.0
        assert drawn <= certs.accuracy(r) + 1e-9


def test_pictures_have_units_and_one_legend_entry_for_each_line() -> None:
    pytest.importorskip("matplotlib")
    lines = [*read_lines([claims([0.3, 0.1]), claims([0.3, 0.2], alpha=0.05)], {})]
    axes = draw([*lines, best_of(lines)], points=[("published", [0.2], [0.5])]).axes[0]
    assert "L2 norm" in axes.get_xlabel()
    assert "%" in axes.get_ylabel()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "alpha 0.001",
        "alpha 0.05",
        "best",
        "published",
    ]
    assert draw_histogram(lines).axes[0].get_ylabel() == "inputs (%)"


def test_differences_are_taken_input_by_input() -> None:
    first, other = claims([0.3, 0.1, 0.3, 0.1]), claims([0.3, 0.3, 0.3, 0.3])
    gap, error = difference(first, other, 0.2)
    assert gap == 0.5
    assert error == pytest.approx(np.std([0, 1, 0, 1], ddof=1) / 2)
    rows = compared(read_lines([first, other], {}), [0.2])
    assert rows[1].against == ((gap, error),)
    assert table_rows(rows)[-1][-1] == "+50.00 ± 28.87"
    assert [row.average for row in rows] == pytest.approx([0.2, 0.3])


def trained(folder: str, model: str, radii: list[float]) -> Line:
    facts = {"folder": folder, "model": model, "smoothing": "gaussian:sigma=0.5", "k": "top 1"}
    return replace(line_of_claims(claims(radii), facts), label=folder)


def test_several_trainings_have_a_mean_and_students_interval() -> None:
    radii = [[0.3, 0.1, 0.3, 0.1], [0.3, 0.3, 0.3, 0.1], [0.3, 0.3, 0.3, 0.3], [0.3, 0.3, 0.1, 0.3]]
    lines = [trained(f"run {i}", f"model {i}", some) for i, some in enumerate(radii)]
    first, other = over_trainings(lines, 2, [0.2], ["noise", "macer"])
    assert first.certified[0].values == (0.5, 0.75)
    assert first.certified[0].mean == 0.625
    low, high = stats.t.interval(0.95, 1, loc=0.625, scale=0.125)
    assert first.certified[0].half_width == pytest.approx((high - low) / 2)
    assert Spread((0.5, 0.5)).half_width == 0
    assert Spread((0.5, 0.5)).minus(Spread((0.25, 0.25))) == (0.25, 0)
    welch = stats.ttest_ind([1, 0.75], [0.5, 0.75], equal_var=False).confidence_interval(0.95)
    gap, half = other.certified[0].minus(first.certified[0])
    assert (gap - half, gap + half) == pytest.approx((welch.low, welch.high))
    assert first.quantities["average_radius"].mean == pytest.approx(0.225)
    assert trainings_table([first, other])[0][0] == "noise (2)"
    assert trainings_table([first, other])[2][-1] == f"+25.00 ± {100 * half:.2f}"
    plain = trainings_json([first, other], [0.2])[1]
    assert plain["runs"] == ["run 2", "run 3"]
    assert plain["against_first"][0] == {"radius": 0.2, "difference": gap, "half_width": half}


def test_only_runs_that_differ_in_the_model_alone_are_trainings_of_one_network() -> None:
    one, two = trained("a", "model 1", [0.3, 0.1]), trained("b", "model 2", [0.3, 0.3])
    with pytest.raises(BadInput, match="a and b differ in smoothing"):
        over_trainings([one, replace(two, facts={**two.facts, "smoothing": "laplace:sigma=1"})], 2, [0.1], None)
    with pytest.raises(BadInput, match="two are of the same model"):
        over_trainings([one, replace(two, facts={**two.facts, "model": "model 1"})], 2, [0.1], None)
    with pytest.raises(BadInput, match="--seeds 2 with 3 runs: .* the last has 1; give 1 more"):
        over_trainings([one, two, one], 2, [0.1], None)
    with pytest.raises(BadInput, match="--seeds 1: .* leave --seeds out"):
        over_trainings([one, two], 1, [0.1], None)
    with pytest.raises(BadInput, match="leave attacks and --best out"):
        over_trainings([best_of([one, two]), two], 2, [0.1], None)


def test_a_list_of_runs_is_not_one_run() -> None:
    with pytest.raises(BadInput, match=r"a list of 2 cannot be drawn as one run: write plot\(\*runs\)"):
        read_lines([["a", "b"]], {})
