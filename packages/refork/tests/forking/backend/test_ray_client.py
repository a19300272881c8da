"""``ray://``: a cluster reached from outside, through Ray's client server and with a token."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from refork.errors import MissingExtra
from refork.forking.backend.ray_pool import import_ray
from refork.tree import Tree
from support.exported import exported

try:
    import_ray()
except MissingExtra:
    pytest.skip("the extra ray is not installed", allow_module_level=True)
pytest.importorskip("grpc", reason="Ray's client needs grpcio")

pytestmark = pytest.mark.slow
SCRIPTS = Path(sys.executable).parent


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened on a moment ago, all different."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a client server, and what a command needs in its environment to use it."""
    first, client = free_ports(2)
    env = os.environ | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    log = tmp_path_factory.mktemp("ray") / "head.log"
    command = [
        str(SCRIPTS / "ray"), "start", "--head", "--block", f"--port={first}", "--num-cpus=2",
        f"--ray-client-server-port={client}", "--include-dashboard=false", "--min-worker-port=0",
        "--max-worker-port=0", f"--object-store-memory={80 * 2**20}", "--node-ip-address=127.0.0.1",
    ]  # fmt: skip
    with log.open("w") as said:
        head = subprocess.Popen(command, env=env, stdout=said, stderr=said, start_new_session=True)
    try:
        for _ in range(240):
            if head.poll() is not None:
                raise RuntimeError(log.read_text())
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", client)) == 0:
                    break
            time.sleep(0.25)
        yield f"ray://127.0.0.1:{client}", env
    finally:
        head.terminate()
        try:
            head.wait(900)
        finally:
            # What Ray began is of its session: nothing of it outlives the test.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(head.pid, signal.SIGKILL)


def grown(out: Path, backend: str, env: dict[str, str]) -> bytes:
    """The tree that a command grows with a backend, as it is exported."""
    command = [
        str(SCRIPTS / "refork"), "grow", "--world", "specialists", "--policy", "scripted:specialist@0",
        "--set", "tasks.count=3", "--draws", "8", "--out", str(out), "--backend", backend,
    ]  # fmt: skip
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=900)
    with Tree.open(out / "tree.db") as tree:
        return exported(tree)


def test_two_workers_behind_the_client_server_give_the_bytes_of_one_process(
    cluster: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    address, env = cluster
    outside = grown(tmp_path / "outside", f"{address}?unit=4&workers=2", env)
    assert outside == grown(tmp_path / "alone", "serial?unit=4", env)


def test_without_the_token_the_cluster_lets_nobody_in(
    cluster: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    address, env = cluster
    with pytest.raises(subprocess.CalledProcessError) as refused:
        grown(tmp_path / "stranger", f"{address}?workers=1", env | {"RAY_AUTH_TOKEN": "0" * 32})
    assert refused.value.returncode == 2
    assert b"Traceback" not in refused.value.stderr
