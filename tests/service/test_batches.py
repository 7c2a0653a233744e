"""Batches survive stops, kills and other replicas, and end as runs like any other."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_world import desk, half_spaces, service
from waiting import until

from vauban.client import Client, RemoteBatch, ServiceError
from vauban.data import load
from vauban.replay import replay
from vauban.runs.verify import verify_run

PICTURES = np.random.default_rng(5).integers(0, 256, (8, 1, 2, 2), dtype=np.uint8)


def test_a_batch_is_a_run_that_verifies_and_replays(tmp_path: Path) -> None:
    with service(tmp_path / "served") as world:
        labels = [1] * len(PICTURES)
        batch = world.client.batch(PICTURES, labels, n=1_000)
        state = batch.wait(300)
        assert (state["decided"], state["votes"]) == (8, 8_000)
        run = batch.save(tmp_path / "run")
        assert run.verify().inputs == 8
        assert run.manifest.data.label == labels
        unlabelled = world.client.batch(PICTURES, n=1_000)
        unlabelled.wait(300)
        unlabelled.save(tmp_path / "unlabelled")
        assert replay(tmp_path / "unlabelled", half_spaces, PICTURES, inputs=4).votes == 4 * 1_000
        claims = batch.claims()
        assert claims["finished"]
        assert [claim["index"] for claim in claims["claims"]] == list(range(8))
        assert sum(batch.counts()["1000"]["3"]) == 1_000
        status, headers, page = world.send("GET", f"/runs/{batch.id}/report")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert headers["content-security-policy"].startswith("sandbox")
        assert page.count(b"data:image/png") >= 8
        assert batch.report(tmp_path / "report.html").read_bytes() == page
        early = world.client.batch(PICTURES, labels, n=20_000, radius=0.05)
        assert early.wait(300)["votes"] < 8 * 20_000
        assert early.save(tmp_path / "early").verify()


def test_a_batch_certifies_the_top_k_of_given_labels(tmp_path: Path) -> None:
    dark = np.full((2, 1, 2, 2), 40, dtype=np.uint8)  # label 1 is the second of three
    with service(tmp_path / "served") as world:
        first, top = (world.client.batch(dark, [1, 1], n=1_000, k=k) for k in (1, 2))
        first.wait(300)
        top.wait(300)
        assert all(claim["abstained"] for claim in first.claims()["claims"])
        assert all(claim["radius"] is not None for claim in top.claims()["claims"])
        run = top.save(tmp_path / "run")
        assert run.verify().inputs == 2
        assert run.certificates().k == 2
        with pytest.raises(ServiceError, match="422.*k=2.*given labels"):
            world.client.batch(dark, k=2)
    with service(tmp_path / "exact", smoothing="splitting:sigma=0.3") as world:
        batch = world.client.batch(dark, k=2)
        batch.wait(300)
        assert batch.save(tmp_path / "exact-run").certificates().k == 2


def test_requests_are_answered_while_a_batch_votes_and_it_can_be_cancelled(tmp_path: Path) -> None:
    with service(tmp_path / "served") as world:
        batch = world.client.batch(PICTURES, n=1_000_000)
        until(lambda: batch.state["state"] == "running")
        assert world.client.certify(PICTURES[0], votes=200).votes > 100
        assert batch.cancel()["state"] == "cancelled"
        with pytest.raises(ServiceError, match="cancelled"):
            batch.wait(300)
        until(lambda: not world.desk.voting._lanes or not any(x.tickets for x in world.desk.voting._lanes.values()))
        with pytest.raises(ServiceError, match="409"):
            batch.save(tmp_path / "run")


def test_a_stopped_service_resumes_its_batch_with_the_same_seed(tmp_path: Path) -> None:
    with service(tmp_path / "served") as world:
        batch = world.client.batch(PICTURES, n=5_000)
        folder = tmp_path / "served" / batch.id / "run"
        until(lambda: (folder / "tallies.jsonl").exists() and (folder / "tallies.jsonl").stat().st_size > 0)
    kept, seed = (folder / "tallies.jsonl").read_bytes(), (folder / "seed").read_bytes()
    assert kept
    with service(tmp_path / "served") as world:
        (again,) = world.client.runs()
        assert again.wait(300)["decided"] == 8
        assert again.save(tmp_path / "run").verify()
    assert (folder / "tallies.jsonl").read_bytes().startswith(kept)
    assert (folder / "seed").read_bytes() == seed


def test_two_replicas_share_a_folder_and_a_batch_is_done_once(tmp_path: Path) -> None:
    with service(tmp_path / "served") as one, service(tmp_path / "served") as other:
        batches = [one.client.batch(PICTURES, n=1_000) for _ in range(2)]
        for batch in batches:
            seen = next(found for found in other.client.runs() if found.id == batch.id)
            assert seen.wait(300)["decided"] == 8
            assert verify_run(tmp_path / "served" / batch.id / "run").votes == 8_000
            assert seen.claims() == batch.claims()


def test_a_half_written_batch_is_no_batch(tmp_path: Path) -> None:
    (tmp_path / ".new-0123").mkdir()
    (tmp_path / ".new-0123" / "inputs.npy").write_bytes(b"half")
    found = desk(tmp_path)
    assert found.folder.entries() == []
    assert found.open_batches() == 0


@pytest.mark.slow
def test_kill_9_during_a_batch_loses_nothing(tmp_path: Path) -> None:
    """The service is killed again and again while it votes; in the end the run is whole and its lines were only added to."""
    command = [sys.executable, "-m", "vauban", "serve", "-s", "gaussian:sigma=0.5", "--runs", str(tmp_path / "served")]
    digits, kept, folder = load("mnist").images[:12], b"", None
    for kill in range(6):
        port = 20_000 + (os.getpid() + 131 * kill) % 10_000
        client = Client(f"http://127.0.0.1:{port}", retries=0)
        with open(tmp_path / "log", "ab") as log:
            process = subprocess.Popen(
                [*command, "--port", str(port)], stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}
            )
        try:
            until(partial(_answers, client))
            if kill == 0:
                client.batch(digits, n=5_000)
            (batch,) = client.runs()
            folder = tmp_path / "served" / batch.id / "run"
            if kill == 5:
                assert batch.wait(300)["decided"] == 12
                assert batch.save(tmp_path / "run").verify().votes == 60_000
            else:
                until(partial(_grown, folder / "tallies.jsonl", len(kept) + 300, batch))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        now = (folder / "tallies.jsonl").read_bytes()
        whole = now[: now.rfind(b"\n") + 1]
        assert whole.startswith(kept)
        kept = whole
    assert verify_run(folder).votes == 60_000


def _grown(lines: Path, length: int, batch: RemoteBatch) -> bool:
    state = batch.state
    assert state["state"] != "failed", state["detail"]
    return (lines.exists() and lines.stat().st_size > length) or state["state"] == "done"


def _answers(client: Client) -> bool:
    try:
        return bool(client.about())
    except ServiceError:
        return False


@pytest.mark.slow
def test_a_batch_votes_on_a_ray_cluster(tmp_path: Path, ray_cluster: Any) -> None:
    """The cluster's votes are in a run that replays here."""
    (ray_cluster.code / "service_world.py").write_bytes((Path(__file__).parent / "service_world.py").read_bytes())
    with service(tmp_path / "served", on=ray_cluster.on) as world:
        batch = world.client.batch(PICTURES, n=1_000)
        assert world.client.certify(PICTURES[0], votes=200).votes > 100
        assert batch.wait(300)["votes"] == 8_000
        batch.save(tmp_path / "run")
    assert replay(tmp_path / "run", half_spaces, PICTURES, inputs=4).inputs == 8
