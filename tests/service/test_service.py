"""What a service answers is what the library would answer, and its records verify and replay."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from service_world import BRIGHT, World, half_spaces, service

from vauban.client import Client, RemoteCertificate, ServiceError, save_files
from vauban.errors import BadInput, RunRefused
from vauban.replay import replay


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with service(tmp_path_factory.mktemp("served")) as found:
        yield found


def test_a_prediction_is_the_smoothed_classifiers(world: World) -> None:
    found = world.client.predict(BRIGHT, n=2_000)
    assert found["labels"] == [2]
    assert sum(found["counts"]) == found["votes"] == 2_000
    assert found["alpha"] == 0.001
    assert world.client.predict(np.full((1, 2, 2), 64, dtype=np.uint8))["abstained"] in (True, False)


def test_events_end_with_a_record_that_verifies_and_replays(world: World, tmp_path: Path) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    found = world.client.certify(BRIGHT, votes=2_000, views=3, on_event=lambda *event: told.append(event))
    names = [name for name, _ in told]
    assert names[:2] == ["accepted", "views"]
    assert names[-1] == "done"
    assert set(names[2:-1]) == {"radius"}
    assert np.shape(told[1][1]["views"]) == (3, 1, 2, 2)
    run = found.save(tmp_path / "run")
    assert run.verify().seed == "system"
    assert run.manifest.seed.commitment == told[0][1]["commitment"]
    assert run.manifest.data.sha256 == told[0][1]["input"]
    assert float(run.certificates().radius[0]) >= found.radius > 0
    assert found.label == 2
    assert 1_000 < found.votes <= 2_000
    assert replay(tmp_path / "run", half_spaces, BRIGHT[None]).votes >= found.votes


def test_streamed_radii_grow_and_never_exceed_the_sealed_one(world: World) -> None:
    radii: list[float] = []

    def note(name: str, content: dict[str, Any]) -> None:
        if name == "radius" and content["radius"] is not None:
            radii.append(float(content["radius"]))

    found = world.client.certify(BRIGHT, votes=3_000, on_event=note)
    assert radii == sorted(radii)
    assert found.radius is not None
    assert radii[-1] <= found.radius


def test_records_of_requests_that_shared_shapes_replay(world: World, tmp_path: Path) -> None:
    pictures = [np.full((1, 2, 2), 10 + 20 * i, dtype=np.uint8) for i in range(12)]
    found: dict[int, RemoteCertificate] = {}

    def ask(i: int) -> None:
        found[i] = Client(world.url, retries=3).certify(pictures[i], votes=500, label=None)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(pictures))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    commitments = set()
    for i, one in found.items():
        run = one.save(tmp_path / str(i))
        replay(tmp_path / str(i), half_spaces, pictures[i][None])
        commitments.add(run.manifest.seed.commitment)
    assert len(commitments) == len(pictures)


@pytest.mark.slow
def test_records_of_several_workers_replay(tmp_path: Path) -> None:
    class Cut(torch.nn.Module):
        def forward(self, views: torch.Tensor) -> torch.Tensor:
            return half_spaces(views)

    pictures = [np.full((1, 2, 2), 40 * i, dtype=np.uint8) for i in range(6)]
    found: dict[int, RemoteCertificate] = {}
    with service(tmp_path / "served", model=Cut(), workers=2) as world:
        threads = [
            threading.Thread(target=lambda i=i: found.update({i: world.client.certify(pictures[i], votes=500)}))
            for i in range(len(pictures))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        batch = world.client.batch(np.stack(pictures), n=1_000)
        assert batch.wait(60)["decided"] == len(pictures)
        batch.save(tmp_path / "batch").verify()
    for i, one in found.items():
        one.save(tmp_path / str(i))
        assert replay(tmp_path / str(i), Cut(), pictures[i][None]).votes >= one.votes
    assert len(found) == len(pictures)


def test_a_request_stops_at_its_radius(world: World) -> None:
    few = world.client.certify(BRIGHT, radius=0.01)
    assert few.radius is not None
    assert few.radius >= 0.01
    assert few.votes < 100_000


def test_a_given_label_is_certified_or_abstained(world: World, tmp_path: Path) -> None:
    wrong = world.client.certify(BRIGHT, votes=300, label=0)
    assert wrong.abstained
    assert wrong.radius is None
    assert wrong.label == 0
    assert wrong.save(tmp_path / "run").verify().votes == wrong.votes


def test_floats_off_the_grid_have_a_manifest_of_their_own(world: World, tmp_path: Path) -> None:
    found = world.client.certify(np.full((1, 2, 2), 0.9 + 1e-3, dtype=np.float32), votes=200)
    run = found.save(tmp_path / "run")
    run.verify()
    assert run.manifest.inputs.levels is None
    assert world.client.certify(BRIGHT, votes=200).files["manifest.json"].count('"levels": 255') == 1


def test_a_kept_record_is_among_the_runs(world: World, tmp_path: Path) -> None:
    found = world.client.certify(BRIGHT, votes=200, keep=True)
    (kept,) = [run for run in world.client.runs() if run.id == found.id]
    assert kept.state["state"] == "done"
    assert float(kept.claims()["claims"][0]["radius"]) == found.radius
    assert kept.save(tmp_path / "run").verify()


def test_too_little_time_is_said(world: World) -> None:
    with pytest.raises(ServiceError, match="more seconds"):
        world.client.certify(BRIGHT, seconds=1e-9)


def test_health_metrics_and_description(world: World) -> None:
    assert world.send("GET", "/healthz")[0] == 200
    world.client.predict(BRIGHT)
    text = world.send("GET", "/metrics")[2].decode()
    assert 'vauban_requests_total{path="/predict",status="200"}' in text
    assert "vauban_votes_total" in text
    about = world.client.about()
    assert about["shape"] == [1, 2, 2]
    assert about["threat"]["name"] == "l2"


def test_the_page_is_there_and_may_load_nothing_else(world: World) -> None:
    script = {"/app.js": "text/javascript", "/chart.js": "text/javascript"}
    for path, kind in {"/": "text/html", **script, "/style.css": "text/css"}.items():
        status, headers, content = world.send("GET", path)
        assert status == 200
        assert headers["content-type"].startswith(kind)
        assert b"http" not in content.replace(b"https://", b"")
        assert "default-src 'none'" in headers["content-security-policy"]


def test_top_k_is_certified_for_a_given_label_and_predicted(world: World, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    between = np.full((1, 2, 2), 64, dtype=np.uint8)
    top = world.client.certify(between, votes=2_000, label=1, k=2, on_event=lambda _, event: told.append(event))
    assert told[0]["settings"]["k"] == 2
    run = top.save(tmp_path / "run")
    run.verify()
    assert run.certificates().k == 2
    first = world.client.certify(between, votes=2_000, label=1)
    assert top.radius is not None
    assert first.radius is None or first.radius < top.radius
    assert "2" in top.claim
    with pytest.raises(ServiceError, match="422.*label="):
        world.client.certify(between, k=2)
    found = world.client.predict(between, k=2)
    assert found["abstained"] or sorted(found["labels"]) == [0, 1]


def test_an_exact_smoothing_is_certified_without_probability(tmp_path: Path) -> None:
    with service(tmp_path / "served", smoothing="splitting:sigma=0.3") as world:
        found = world.client.certify(BRIGHT, views=4)
        run = found.save(tmp_path / "run")
        run.verify()
        assert run.certificates().exact
        assert found.label == int(run.certificates().label[0])
        assert found.radius == float(run.certificates().to_csv().splitlines()[1].split(",")[2])
        assert world.client.predict(BRIGHT)["alpha"] == 0
        batch = world.client.batch(np.stack([BRIGHT, BRIGHT // 8]), [2, 0])
        assert batch.wait(300)["decided"] == 2
        assert batch.save(tmp_path / "batch").verify()


def test_a_model_that_changes_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shifted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = torch.nn.Parameter(torch.zeros(3))

        def forward(self, views: torch.Tensor) -> torch.Tensor:
            return half_spaces(views) + self.shift

    model = Shifted()
    with service(tmp_path, model=model) as world:
        world.client.predict(BRIGHT)
        with torch.no_grad():
            model.shift += 1
        monkeypatch.setattr("vauban.service.served._RECHECK_SECONDS", -1.0)
        with pytest.raises(ServiceError, match="503.*start the service again"):
            world.client.predict(BRIGHT)
        assert world.send("GET", "/healthz")[0] == 503


def test_a_client_writes_only_plain_names_to_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(RunRefused, match="names"):
        save_files(tmp_path / "new", {"../seal.json": "{}"})
    assert not (tmp_path / "seal.json").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(RunRefused, match="not empty"):
        save_files(tmp_path / "full", {"seal.json": "{}"})
    with pytest.raises(BadInput, match="address"):
        Client("file:///etc")
