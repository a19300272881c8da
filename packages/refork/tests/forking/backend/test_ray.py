"""The Ray backend on Ray's own local cluster of several nodes, with workers and a node killed under way."""

from __future__ import annotations

import builtins
import os
import re
import signal
import socket
import time

import pytest

from refork.errors import MissingExtra, ServerError
from refork.forking.backend import open_backend
from refork.forking.backend.ray_pool import import_ray

try:
    import_ray()
except MissingExtra:
    pytest.skip("the extra ray is not installed", allow_module_level=True)

pytestmark = [
    pytest.mark.slow,
    # Ray leaves sockets, log files and child processes for the interpreter to close.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROOM = {"object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def cluster():
    """A head without room for workers, and two nodes with room for one each."""
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0} | ROOM)
    try:
        for _ in range(2):
            _add_node(made)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def _add_node(cluster, tries=4):
    """Ray gives a node thirty seconds to begin, which is little on a machine that does much else."""
    try:
        cluster.add_node(num_cpus=1, **ROOM)
    except Exception as error:
        if "timed out during startup" not in str(error) or tries == 1:
            raise
        _add_node(cluster, tries - 1)


@pytest.fixture(scope="module")
def backend(cluster):
    with open_backend(f"ray:{cluster.address}?unit=4&workers=2") as made:
        made.pool.start()
        while len(made.pool.alive()) < 2:
            made.pool.wait(1.0)
        yield made


def test_two_nodes_give_the_bytes_of_one_worker(work, alone, backend):
    assert work.export(backend) == alone
    assert len(set(backend.pool.alive().values())) == 2


def test_actors_at_work_give_signs_of_life(backend):
    pool = backend.pool
    before = {number: sign.at for number, sign in pool.signs().items()}
    assert len(before) == 2
    for _ in range(1200):
        pool.wait(0.1)
        if all(sign.at > before[number] and sign.done == 0 for number, sign in pool.signs().items()):
            return
        time.sleep(0.1)
    pytest.fail("no sign of life within two minutes")


def test_a_killed_worker_and_a_killed_node_lose_nothing_and_double_nothing(
    work, alone, backend, cluster, capsys
):
    killed, before = [], backend.retried

    def kill(stage, done, total, *, tokens=None, waiting=None):
        if stage == "rollouts" and done >= 8 and not killed and (pids := list(backend.pool.alive().values())):
            os.kill(pids[0], signal.SIGKILL)
            killed.append("worker")
        if stage == "rollouts" and done >= 24 and killed == ["worker"]:
            cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
            killed.append("node")

    assert work.export(backend, kill) == alone
    assert killed == ["worker", "node"]
    shown = backend.roster.to_json()
    lost = [one for one in shown if one["state"] == "lost"]
    assert lost[0]["why"].startswith("ActorDiedError")
    assert {one["pid"] for one in shown if one["state"] == "idle"} <= set(backend.pool.alive().values())
    assert all(one["host"] == socket.gethostname() for one in lost)
    assert backend.retried > before  # the node's worker may have been idle
    assert not re.search("raylet", capsys.readouterr().out)


def test_a_cluster_that_is_not_there_is_said_plainly(monkeypatch):
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def refuse(**options):
        raise ConnectionError(f"nobody at {options['address']}")

    monkeypatch.setattr(ray, "init", refuse)
    with open_backend("ray:127.0.0.1:1") as backend, pytest.raises(ServerError, match="ray start --head"):
        backend.pool.start()


def test_without_ray_the_install_command_is_named(monkeypatch):
    real = builtins.__import__

    def missing(name, *rest):
        if name == "ray":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'ray\[client\]>="):
        import_ray()
