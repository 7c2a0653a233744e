"""The address of a Ray cluster (`--on`), and the connection to it."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from vauban.errors import BadInput, MissingExtra
from vauban.specs import Parameter, Spec, choose, read_params

REACHED, HEALTHY = 2.5, 6.5
"""Seconds in which the machine, and then the cluster, must answer; the time to load Ray is not counted."""


def _workers(text: str) -> int:
    if (count := int(text)) < 1:
        raise BadInput(f"{text} is not a whole number above zero")
    return count


@dataclass(frozen=True)
class RayCluster:
    """A Ray cluster at `address` (None: at RAY_ADDRESS, else one is started on this machine), with `workers` at most."""

    address: str | None = None
    workers: int | None = None


def read_cluster(on: str | None) -> RayCluster | None:
    """Read `ray` or `ray:address=host:port,workers=8`; `here`, or nothing, is None: this process does the work.

    >>> read_cluster("ray:address=10.0.0.1:6379")
    RayCluster(address='10.0.0.1:6379', workers=None)
    """
    if on is None:
        return None
    spec = Spec.parse(on)
    known = {"address": Parameter(str, example="10.0.0.1:6379"), "workers": Parameter(_workers, example="8")}
    name = choose("executor (--on)", spec.name, ("here", "ray"))
    values = read_params(spec, known if name == "ray" else {})
    return RayCluster(**values) if name == "ray" else None


def connect(cluster: RayCluster, purpose: str) -> Any:
    """The module ray, connected to the cluster; an address that does not answer is refused within ten seconds.

    `purpose`: what an error says needs Ray. An existing connection is kept.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "cluster", purpose) from None
    if ray.is_initialized():
        if cluster.address is not None:
            _check_same(ray.get_runtime_context().gcs_address, cluster.address)
        return ray
    address = cluster.address or os.environ.get("RAY_ADDRESS") or "local"
    if address != "local":
        _check_answers(address, "ray:address" if cluster.address else "RAY_ADDRESS")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, SystemExit) as problem:
        raise BadInput(
            f"there is no Ray cluster at {address} ({_first_line(problem)}): start one with ray start --head, and run this "
            "command on one of its machines"
        ) from None
    return ray


def _check_same(connected: str, given: str) -> None:
    if _resolved(given) != _resolved(connected):
        raise BadInput(
            f"ray:address={given}: this process is connected to the cluster at {connected}; leave the address out to use "
            "it, or call ray.shutdown() first"
        )


def _resolved(address: str) -> tuple[str, int]:
    """IP address and port; "here" stands for every address of this machine."""
    host, port = _parts(address)
    try:
        ip = socket.gethostbyname(host)
    except OSError:
        return host, port
    here = ip.startswith("127.") or ip in _own_ips()
    return "here" if here else ip, port


def _own_ips() -> list[str]:
    import ray

    try:
        return [*socket.gethostbyname_ex(socket.gethostname())[2], ray.util.get_node_ip_address()]
    except OSError:
        return [ray.util.get_node_ip_address()]


def _parts(address: str, given: str = "ray:address") -> tuple[str, int]:
    if "://" in address:
        raise BadInput(
            f"{given}={address}: the address of a cluster is host:port, as ray start --head prints it; Ray's client "
            "(ray://) is not used: run this command on a machine of the cluster"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise BadInput(f"{given}={address} is not host:port, for example {given}=10.0.0.1:6379")
    return host, int(port)


def _check_answers(address: str, given: str) -> None:
    """Refuse an address where no Ray cluster answers; Ray itself would try for up to a minute and then end the process."""
    host, port = _parts(address, given)
    advice = "is it the one that ray start --head printed, and is the cluster up?"
    try:
        socket.create_connection((host, port), timeout=REACHED).close()
    except OSError as problem:
        why = "no answer" if isinstance(problem, TimeoutError) else problem.strerror or problem
        raise BadInput(f"no Ray cluster answers at {address} ({why}): {advice}") from None
    said, code = _health_check(address)
    if code is None:
        raise BadInput(f"no Ray cluster answers at {address} (no answer in {HEALTHY:g} s): {advice}")
    if "AuthenticationError" in said:
        raise BadInput(
            f"the Ray cluster at {address} needs its token: set RAY_AUTH_MODE=token here too, and let Ray find the token "
            "that ray get-auth-token prints there, in ~/.ray/auth_token or RAY_AUTH_TOKEN"
        )
    if code:
        last = (said.strip().splitlines() or ["no reason given"])[-1][:200]
        raise BadInput(f"what answers at {address} is not a Ray cluster ({last}): {advice}")


def _health_check(address: str) -> tuple[str, int | None]:
    """Error output and exit code of Ray's health check of an address; the code is None if it ran too long after loading."""
    program = "from ray.scripts.scripts import main; print('loaded', flush=True); main()"
    command = [sys.executable, "-c", program, "health-check", "--address", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as checking:
        try:
            assert checking.stdout is not None
            checking.stdout.readline()
            _, said = checking.communicate(timeout=HEALTHY)
        except subprocess.TimeoutExpired:
            checking.kill()
            return "", None
        return said, checking.returncode


def _first_line(problem: BaseException) -> str:
    if isinstance(problem, SystemExit):
        return "Ray gave up"
    reason = problem.__cause__ or problem
    return (str(reason).strip().splitlines() or [type(reason).__name__])[0][:300]
