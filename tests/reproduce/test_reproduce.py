"""vauban reproduce from one TOML file: training, runs, verification, comparison, pictures; resumed, within a budget, refused."""

import json
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import process, vauban
from safetensors.numpy import load_file
from small_entry import ENTRY

import vauban as vb
from vauban.certificates import derive
from vauban.errors import BadInput, Incomplete, RunRefused
from vauban.reproduce import running
from vauban.reproduce.analytic import FIGURES
from vauban.reproduce.budget import read_budget
from vauban.reproduce.comparing import measured
from vauban.reproduce.entry import find
from vauban.reproduce.inputs import chosen_inputs
from vauban.reproduce.running import Options
from vauban.reproduce.running import reproduce as run_entry
from vauban.reproduce.steps import Step, certify, train
from vauban.reproduce.using import use
from vauban.runs.verify import verify_run

pytest.importorskip("matplotlib")


def test_one_file_is_an_experiment(entry: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    only = ("reproduce", entry, "--device", "cpu", "--out", out)
    vauban(*only, "--only", "sigma=0.25")
    first = json.loads((out / "results.json").read_text())
    assert first["missing"] == []
    assert first["commands"] == [f"vauban reproduce {entry} --only sigma=0.25 --out FOLDER"]
    assert f"\n    {first['commands'][0]}\n" in (out / "README.md").read_text()
    assert [row["done"] for row in first["compared"]] == [True, True, True, False]
    weights = (out / "weights" / "gaussian_sigma=0.25-mlp_width_16_depth_1.safetensors").stat().st_mtime_ns
    said = vauban(*only)
    assert "published" in said
    assert (out / "weights" / "gaussian_sigma=0.25-mlp_width_16_depth_1.safetensors").stat().st_mtime_ns == weights
    found = json.loads((out / "results.json").read_text())
    assert found["commands"] == [f"vauban reproduce {entry} --out FOLDER"]
    certs = {s: vb.Run.open(out / "runs" / f"sigma-{s}").certificates() for s in ("0.25", "0.5")}
    assert certs["0.5"].index.tolist() == [1, 2501, 5001, 7501]
    best = max(100 * some.accuracy(0.1) for some in certs.values())
    assert found["compared"][1]["ours"] == pytest.approx(best)
    assert found["compared"][1]["difference"] == pytest.approx(best - 40)
    assert found["compared"][2]["ours"] == pytest.approx(100 * certs["0.25"].clean_accuracy)
    assert all(
        (out / name).stat().st_size > 1000 for name in ("figure.png", "figure.svg", "sweep-sigma.png", "README.md")
    )
    assert (out / "runs" / "sigma-0.5" / "tallies.jsonl.gz").exists()
    assert verify_run(out / "runs" / "sigma-0.5").inputs == 4
    refused = vauban(*only, "--epochs", "3", code=2)
    assert "another experiment" in refused
    assert "epochs" in refused


def test_a_finished_run_needs_no_weights(entry: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    again = ("reproduce", entry, "--device", "cpu", "--only", "sigma=0.25", "--epochs", "0.2", "--out", out)
    vauban(*again)
    first = (out / "results.json").read_text()
    shutil.rmtree(out / "weights")
    vauban(*again)
    assert not (out / "weights").exists()
    assert json.loads((out / "results.json").read_text())["compared"] == json.loads(first)["compared"]


@pytest.mark.slow
def test_trainings_may_start_from_one_that_certifies_nothing(entry: Path, tmp_path: Path) -> None:
    begin = '\n[train.begin]\nsmoothing = "gaussian:sigma=0.1"\nsettings = { epochs = 4, lr = 0.01 }\n\n[certify]'
    entry.write_text(
        ENTRY.replace("settings = { epochs = 2, batch = 50 }", "settings = { epochs = 0.2, lr = 1e-9 }").replace(
            "\n[certify]", begin
        )
    )
    out = tmp_path / "out"
    outcome = run_entry(find(str(entry)), out, Options(progress=False, say=lambda text: None))
    assert [step.partition(":")[0] for step in outcome.verified] == ["sigma-0.5", "sigma-0.25"]
    first, *others = sorted((out / "weights").glob("*.safetensors"))
    assert first.name.startswith("begin-gaussian_sigma=0.1")
    assert len(others) == 2
    weights = {file: load_file(file) for file in (first, *others)}
    for file in others:  # a step of 1e-9 leaves them where they started
        for name, tensor in weights[file].items():
            assert np.allclose(tensor, weights[first][name], atol=1e-6)
    assert sum("training" in step for step in outcome.seconds) == 3
    entry.write_text(entry.read_text().replace('smoothing = "gaussian:sigma=0.1"', 'modle = "mlp"'))
    with pytest.raises(BadInput, match=r"\[train.begin\]: modle is no key"):
        find(str(entry))


def test_without_matplotlib_there_are_numbers_and_no_pictures(
    entry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.ticker"):
        monkeypatch.setitem(sys.modules, name, None)
    out = tmp_path / "out"
    vauban("reproduce", entry, "--device", "cpu", "--only", "sigma=0.25", "--epochs", "0.2", "--out", out)
    found = json.loads((out / "results.json").read_text())
    assert (found["missing"], found["pictures"]) == ([], [])
    assert found["compared"][0]["ours"] is not None
    assert verify_run(out / "runs" / "sigma-0.25").inputs == 4


@pytest.mark.slow
def test_a_spent_budget_is_an_unfinished_experiment_that_goes_on(entry: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    only = ("reproduce", entry, "--device", "cpu", "--out", out)
    started = process(*only, "--budget", "0.01s")
    assert "the same command goes on" in started.communicate(timeout=300)[1]
    assert started.returncode == 3
    assert json.loads((out / "results.json").read_text())["missing"] == ["sigma-0.5", "sigma-0.25"]
    vauban(*only)
    assert json.loads((out / "results.json").read_text())["missing"] == []


@pytest.mark.slow
def test_a_budget_holds_though_its_interrupt_is_missed(
    entry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over: list[threading.Event] = []

    @contextmanager
    def within(seconds: float | None, spent: threading.Event) -> Iterator[None]:
        over.append(spent)
        yield

    def trained(*given: Any) -> bool:
        over[0].set()  # during this training, which is not interrupted
        return train(*given)

    monkeypatch.setattr("vauban.reproduce.running.within", within)
    monkeypatch.setattr("vauban.reproduce.steps.train", trained)
    out = tmp_path / "out"
    vauban("reproduce", entry, "--device", "cpu", "--out", out, code=3)
    assert len(list((out / "weights").glob("*.safetensors"))) == 1
    assert not list((out / "runs").glob("*"))  # and nothing was begun after it


def test_a_grid_may_grow_and_recipes_may_not_change(entry: Path, tmp_path: Path) -> None:
    def begin() -> dict[str, Any]:
        running._begin(find(str(entry)), out, Options())
        return dict(json.loads((out / "entry.json").read_text())["recipes"])

    out = tmp_path / "out"
    out.mkdir()
    assert len(begin()) == 2
    entry.write_text(ENTRY.replace("[0.5, 0.25]", "[0.5, 0.75]"))
    assert len(begin()) == 3
    kept = json.loads((out / "entry.json").read_text())
    kept["recipes"]["gaussian_sigma=0.5-mlp_width_16_depth_1"]["lr"] = 7
    (out / "entry.json").write_text(json.dumps(kept))
    (out / "weights").mkdir()
    (out / "weights" / "made.safetensors").write_bytes(b"")  # by the recipe of before
    with pytest.raises(RunRefused, match="another experiment"):
        begin()


def test_what_a_run_keeps_is_no_other_experiment(entry: Path, tmp_path: Path) -> None:
    def begin(certify: str) -> Any:
        entry.write_text(ENTRY.replace("n = 200\n", certify))
        running._begin(find(str(entry)), out, Options())
        return json.loads((out / "entry.json").read_text())["certify"].get("keep")

    out = tmp_path / "out"
    out.mkdir()
    last, plain = 'n = 200\nkeep = "last"\n', "n = 200\n"
    assert begin(last) == "last"
    (out / "made.safetensors").write_bytes(b"")
    assert begin(plain) == "last"  # of the call that made the folder
    (out / "entry.json").unlink()
    (out / "made.safetensors").unlink()
    assert begin(plain) is None
    (out / "made.safetensors").write_bytes(b"")
    assert begin(last) is None
    for other in ("n = 300\n", 'n = 300\nkeep = "last"\n'):
        with pytest.raises(RunRefused, match=r"another experiment \(certify\.n"):
            begin(other)


@pytest.mark.parametrize("first", [{}, {"keep": "last"}])
def test_a_run_that_has_begun_goes_on_as_it_began(
    entry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: dict[str, str]
) -> None:
    from vauban.runs.store import FolderStore

    said = replace(find(str(entry)), grid={"sigma": [0.5]})
    ways = [replace(said, certify={**said.certify, **keep}) for keep in (first, {} if first else {"keep": "last"})]
    began, now = (Step(one, tmp_path, {"sigma": 0.5}) for one in ways)
    train(replace(began, entry=replace(began.entry, train={**said.train, "settings": {"epochs": 0.2}})), "cpu", False)
    (weights,) = (tmp_path / "weights").glob("*.safetensors")
    weights.rename(began.weights)
    keep, kept = FolderStore.keep, []

    def stop(store: FolderStore, record: Any) -> None:
        if len(kept) == 2:
            raise KeyboardInterrupt
        kept.append(record)
        keep(store, record)

    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "keep", stop)
        with pytest.raises(KeyboardInterrupt):
            certify(began, "cpu", False)
    assert certify(now, "cpu", False)
    assert vb.Run.open(now.run).manifest.settings.keep == first.get("keep")
    assert verify_run(now.run).votes == 800


def test_fewer_votes_than_the_entry_says(entry: Path, tmp_path: Path) -> None:
    lines = "\n[[picture]]\nlines = [{ n = 100 }, { n = 200 }]\n\n[[picture]]\nlines = [{ n = 200 }]\n"
    entry.write_text(f"{ENTRY}\n[[published]]\nsource = 't'\nwhat = 'clean'\ny = 1\nn = 200\n{lines}")
    out = tmp_path / "out"
    words = ("reproduce", entry, "--device", "cpu", "--only", "sigma=0.25", "--epochs", "0.2", "--out", out)
    assert "n=1 can certify nothing at alpha=0.05" in vauban(*words, "--votes", 1, code=2)
    assert not out.exists()  # refused before anything is trained
    vauban(*words, "--votes", 120)
    assert vb.Run.open(out / "runs" / "sigma-0.25").certificates().counts.sum(axis=1).tolist() == [120] * 4
    found = json.loads((out / "results.json").read_text())
    assert found["options"] == "--epochs 0.2 --votes 120"
    assert found["commands"] == [f"vauban reproduce {entry} --epochs 0.2 --votes 120 --only sigma=0.25 --out FOLDER"]
    assert len(found["compared"]) == 4  # not the number at 200 votes
    page = (out / "README.md").read_text()
    assert (
        "n = 120 votes an input, in place of the entry's 200. 0.2 epochs of training, in place of the entry's 2.\n"
        in page
    )
    said = vauban("verify", out, code=2)
    assert f"has no manifest.json; 1 run is in {out / 'runs'}: verify {out / 'runs' / 'sigma-0.25'}" in said
    assert [name for name in ("figure-1.png", "figure-2.png") if (out / name).exists()] == ["figure-1.png"]
    assert "certify.n: the run has 120, now 130" in vauban(*words, "--votes", 130, code=2)


def test_no_number_of_votes_where_none_are_sampled(entry: Path) -> None:
    for one in (find("band-mnist"), find("dpa-mnist"), find("thesis-8.2")):
        with pytest.raises(BadInput, match=f"--votes 300: .* of {one.name} has no n .*: leave it out"):
            running.adapted(one, Options(votes=300))
    last = replace(find(str(entry)), certify={"n": 200, "keep": "last"})
    assert running.adapted(last, Options(votes=300)).certify == {"n": 300, "keep": "last"}


def test_points_that_are_trained_in_other_ways_do_not_share_weights(entry: Path, tmp_path: Path) -> None:
    entry.write_text(ENTRY.replace("batch = 50 }", 'batch = 50, loss = "consistency:weight={sigma}" }'))
    fixed = replace(find(str(entry)), train={**find(str(entry)).train, "smoothing": "gaussian:sigma=0.3"})
    assert len({Step(fixed, tmp_path, point).weights for point in fixed.points()}) == 2


def test_printed_is_refused_where_nothing_is_printed(entry: Path, tmp_path: Path) -> None:
    said = vauban("reproduce", entry, "--printed", "--device", "cpu", "--out", tmp_path / "out", code=2)
    assert "mine names no training as a paper prints it" in said
    entry.write_text(ENTRY.replace("limit = 300", 'limit = 300\nprinted_model = "cnn"'))
    with pytest.raises(BadInput, match="printed_model belongs to a printed recipe"):
        find(str(entry))


@pytest.mark.slow
def test_a_training_that_was_stopped_goes_on_where_its_folder_is_moved(entry: Path, tmp_path: Path) -> None:
    begin = '\n[train.begin]\nsmoothing = "gaussian:sigma=0.1"\nsettings = { epochs = 1 }\n\n[certify]'
    entry.write_text(ENTRY.replace("\n[certify]", begin))
    small = replace(find(str(entry)), grid={"sigma": [0.5]})

    def stop(progress: Any) -> None:
        raise KeyboardInterrupt

    step = Step(small, tmp_path / "here", {"sigma": 0.5})
    assert step.first is not None
    train(step.first, "cpu", printed=False)
    with pytest.raises(KeyboardInterrupt):
        train(step, "cpu", False, stop)
    (tmp_path / "here").rename(tmp_path / "there")
    moved = replace(step, out=tmp_path / "there")
    assert list(moved.weights.parent.glob("*checkpoint*"))
    assert train(moved, "cpu", printed=False)


@pytest.mark.slow
def test_a_budget_stops_commands(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    command = (
        "vauban train --data mnist --model mlp --smoothing gaussian:sigma=0.5 --epochs 100000 --out {out}/a.safetensors"
    )
    path.write_text(f'title = "Long"\nsource = "a test"\ndata = "mnist"\ncommands = ["{command}"]\n')
    said = vauban("reproduce", path, "--device", "cpu", "--budget", "6s", "--out", tmp_path / "out", code=3)
    assert "the same command goes on" in said


def test_the_printed_training_has_none_of_our_settings(
    entry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def stopped(step: Step, *_: Any) -> bool:
        asked.append((step.settings, step.entry.train["model"], step.first is not None))
        raise Incomplete("far enough")

    monkeypatch.setattr("vauban.reproduce.steps.train", stopped)
    small = find(str(entry))
    own = {"recipe": "best", "printed": "table-A.2", "begin": {"settings": {"epochs": 9}}, "printed_model": "cnn"}
    both = replace(small, train={**small.train, **own})
    for number, options in enumerate((Options(), Options(printed=True), Options(printed=True, settings={"epochs": 3}))):
        with pytest.raises(Incomplete):
            run_entry(both, tmp_path / str(number), options)
    assert asked[0] == ({"epochs": 9}, small.train["model"], False)  # the training that others start from comes first
    assert asked[1:] == [({}, "cnn", False), ({"epochs": 3}, "cnn", False)]


@pytest.mark.slow
def test_several_seeds_are_averaged_with_their_own_standard_error(entry: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    vauban("reproduce", entry, "--device", "cpu", "--only", "sigma=0.5", "--seeds", "2", "--out", out)
    row = json.loads((out / "results.json").read_text())["compared"][0]
    each = [
        100 * vb.Run.open(out / "runs" / name).certificates().accuracy(0) for name in ("sigma-0.5", "sigma-0.5,seed-1")
    ]
    assert (row["seeds"], row["ours"]) == (2, pytest.approx(np.mean(each)))
    assert row["error"] == pytest.approx(np.std(each, ddof=1) / np.sqrt(2))


def test_inputs_are_slices_and_rules_where_they_begin_at_zero() -> None:
    ruled = chosen_inputs("mnist", "::500")
    assert (ruled.selection.every, len(ruled)) == (500, 20)
    by_hand = chosen_inputs("mnist", "9000:9004:2")
    assert (by_hand.index.tolist(), by_hand.selection.every) == ([9000, 9002], None)
    whole = chosen_inputs("mnist", "")
    assert np.array_equal(by_hand.images, whole.images[[9000, 9002]])
    assert chosen_inputs("mnist", ":5:2").index.tolist() == [0, 2, 4]


def test_quantities_are_those_of_the_papers() -> None:
    counts = [[60, 40, 0], [95, 5, 0], [10, 90, 0], [50, 50, 0]]
    certs = derive(counts, [0, 0, 1, 0], "gaussian:sigma=1", alpha=0.05, truth=[0, 0, 0, 0])
    assert measured(certs, "base", 0)[0] == pytest.approx(100 * (0.6 + 0.95 + 0.1 + 0.5) / 4)
    assert measured(certs, "clean", 0)[0] == 75
    assert measured(certs, "predicted", 0)[0] == 25  # 60 of 100 are not significantly more than 40
    assert measured(certs, "certified", 0.5)[0] == 25
    assert measured(certs, "median", 0)[0] is None or certs.median_radius >= 0
    assert read_budget("1.5h") == 5400
    with pytest.raises(ValueError, match="a time above zero"):
        read_budget("0m")


@pytest.mark.parametrize(
    "name",
    [
        "fractional-designs",
        "laplace-binary",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("ablation-delta", "laplace-regions")),
    ],
)
def test_analytic_figures_agree_with_what_the_papers_say(name: str, tmp_path: Path) -> None:
    outcome = run_entry(find(name), tmp_path, Options(say=lambda _: None))
    for row in outcome.rows:
        assert row.ours is not None
        if row.published is not None:
            assert row.ours <= row.published + 1e-4
    if name == "laplace-regions":
        assert outcome.rows[0].ours > 99.9
    if name == "laplace-binary":
        assert all(abs(row.difference or 0) < 1e-6 for row in outcome.rows)
    assert all(path.stat().st_size > 500 for path in outcome.pictures)


def test_the_baseline_of_label_flips_is_drawn_beside_runs_of_ss_dpa(tmp_path: Path, monkeypatch: Any) -> None:
    from vauban.data import load
    from vauban.reproduce import label_flips

    stored = Path(__file__).parents[2] / "results" / "reproduce" / "ss-dpa-mnist" / "runs"
    beside = tmp_path / "ss-dpa-mnist"
    shutil.copytree(stored / "partitions-1200", beside / "runs" / "partitions-1200")
    use([Step(find("ss-dpa-mnist"), beside, {"partitions": 3000})], {"partitions-3000": stored / "partitions-3000"})
    small = {"train": load("mnist:split=train").select(limit=600), "test": load("mnist:split=test").select(limit=100)}
    monkeypatch.setattr(label_flips, "load", lambda text: small[text.partition("=")[2]])
    monkeypatch.setattr(label_flips, "EVERY", 5)
    outcome = run_entry(find("label-flips-mnist"), tmp_path / "baseline", Options(say=lambda _: None))
    by_name = {row.what: row.ours for row in outcome.rows}
    assert by_name["smoothed labels, q = 0.1: accuracy without flips, percent"] > 60
    assert by_name["smoothed labels, q = 0.1: median of certified flips"] > 0
    table = (tmp_path / "baseline" / "figure-7.1.csv").read_text().splitlines()
    assert table[0].endswith("partitions-1200,partitions-3000")
    assert len(outcome.pictures) == 3


@pytest.mark.slow
def test_no_training_digit_occurs_twice_and_repeated_ones_stay_together(tmp_path: Path) -> None:
    outcome = run_entry(find("repeated-samples-mnist"), tmp_path, Options(say=lambda _: None))
    assert [row.ours for row in outcome.rows] == [0, 0]


@pytest.mark.slow
def test_noise_that_keeps_a_label_is_what_appendix_d_derives(tmp_path: Path) -> None:
    rows, _ = FIGURES["rops"](find("laplace-rops"), tmp_path)
    assert all(abs(row.difference or 0) < 1e-3 for row in rows)


def test_missing_data_are_named_before_anything_is_written(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    said = vauban("reproduce", "ablation-imagenet", "--device", "cpu", "--out", "out", code=2)
    assert "train/CLASS" in said
    assert not (tmp_path / "out").exists()


def test_entries_are_listed_and_shown() -> None:
    listed = json.loads(vauban("reproduce", "--list", "--json"))
    assert len(listed) >= 50
    assert "retained" in vauban("reproduce", "ablation-mnist", "--show")
    assert "--out is missing" in vauban("reproduce", "ablation-mnist", code=2)


@pytest.mark.parametrize(("device", "compiles"), [("cpu", False), ("cuda", True)])
def test_votes_are_compiled_on_a_gpu_where_the_entry_says_so(
    entry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, compiles: bool
) -> None:
    class Seen(Exception):
        pass

    def classifier(*_: object, **options: Any) -> None:
        raise Seen(options.get("compile", False))

    monkeypatch.setattr("vauban.models.load", lambda *_: None)
    monkeypatch.setattr("vauban.smoothed.SmoothedClassifier", classifier)
    made = find(str(entry))
    step = Step(replace(made, certify={**made.certify, "compile": True}), tmp_path, made.points()[0])
    with pytest.raises(Seen, match=str(compiles)):
        certify(step, device, progress=False)


@pytest.mark.slow
def test_a_run_made_elsewhere_is_compared_and_left_as_it_is(entry: Path, tmp_path: Path) -> None:
    made, out = tmp_path / "made", tmp_path / "out"
    vauban("reproduce", entry, "--device", "cpu", "--only", "sigma=0.25", "--no-pack", "--out", made)
    folder = made / "runs" / "sigma-0.25"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    command = ("reproduce", entry, "--device", "cpu", "--only", "sigma=0.25", "--out", out)
    vauban(*command, "--use", f"sigma-0.25={folder}")
    vauban(*command)
    assert not (out / "weights").exists()
    assert not (out / "runs").exists()
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    ours = [json.loads((place / "results.json").read_text())["compared"] for place in (made, out)]
    assert ours[0] == ours[1]
    page = (out / "README.md").read_text()
    assert "made elsewhere (../made/runs/sigma-0.25)" in page
    (shown,) = (line.removeprefix("    vauban ") for line in page.splitlines() if line.startswith("    vauban "))
    assert shown.endswith("--only sigma=0.25 --use sigma-0.25=FOLDER/../made/runs/sigma-0.25 --out FOLDER")
    vauban(*shown.replace("FOLDER", str(tmp_path / "again")).split(), "--device", "cpu")
    assert "has the runs sigma-0.5, sigma-0.25" in vauban(*command, "--use", f"sigma-3={folder}", code=2)
    assert "no finished run folder" in vauban(*command, "--use", f"sigma-0.25={tmp_path}", code=2)
    assert "NAME=FOLDER is needed" in vauban(*command, "--use", "sigma-3", code=2)
    other = ("reproduce", entry, "--device", "cpu", "--only", "sigma=0.5", "--out", tmp_path / "other")
    assert "smoothing is gaussian:sigma=0.25 there, and gaussian:sigma=0.5 here" in vauban(
        *other, "--use", f"sigma-0.5={folder}", code=2
    )
    stored = Path(__file__).parents[2] / "results" / "poisoning" / "dpa-1200"
    assert "a run about poisoning" in vauban(*other, "--use", f"sigma-0.5={stored}", code=2)
    entry.write_text(ENTRY.replace("n = 200", "n = 300"))
    longer = ("reproduce", entry, "--device", "cpu", "--only", "sigma=0.25", "--out", tmp_path / "longer")
    assert "n is 200 there, and 300 here" in vauban(*longer, "--use", f"sigma-0.25={folder}", code=2)
    entry.write_text(ENTRY)
    folder.rename(tmp_path / "away")
    gone = vauban(*command, code=2)
    assert "is not there: give --use sigma-0.25=FOLDER" in gone


def test_a_run_that_kept_its_last_counts_is_no_run_of_an_entry_that_needs_more(entry: Path, tmp_path: Path) -> None:
    said = replace(find(str(entry)), grid={"sigma": [0.5]})
    last = Step(replace(said, certify={**said.certify, "keep": "last"}), tmp_path, {"sigma": 0.5})
    train(replace(last, entry=replace(last.entry, train={**said.train, "settings": {"epochs": 0.2}})), "cpu", False)
    (weights,) = (tmp_path / "weights").glob("*.safetensors")
    weights.rename(last.weights)
    assert certify(last, "cpu", False)
    smaller = replace(said.published[0], claim={"n": 100})
    needs = Step(replace(said, published=(smaller,)), tmp_path, {"sigma": 0.5})
    with pytest.raises(
        RunRefused, match=r"at 200 votes alone \(keep=last\), .* claims something at 100: remove that folder"
    ):
        certify(needs, "cpu", False)
    with pytest.raises(RunRefused, match="keep=last"):
        use([Step(needs.entry, tmp_path / "other", {"sigma": 0.5})], {"sigma-0.5": last.run})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n": "2000"}, "n='2000'"),
        ({"n": 2.5}, "n=2.5"),
        ({"n": 3}, "n=3 can certify nothing"),
        ({"keep": "counts"}, "sampled runs keep counts anyway"),
    ],
)
def test_settings_that_cannot_certify_are_refused_before_training(
    entry: Path, tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    one = find(str(entry))
    with pytest.raises(BadInput, match=said):
        run_entry(replace(one, certify={**one.certify, **settings}), tmp_path / "out", Options())
    assert not (tmp_path / "out").exists()
