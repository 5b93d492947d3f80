"""Training on two hosts with a network between them gives the bits of one process."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from same_runs import content, same
from two_hosts import possible, two_hosts

from made_ratings import write_ratings

DELAY = 0.005  # seconds
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not possible(), reason="needs root, ip netns and /dev/net/tun"),
]


def test_two_hosts_give_the_bits_of_one_process(tmp_path):
    ratings = write_ratings(tmp_path / "r.csv", users=70, items=50, each=9, seed=2)
    options = ("--data", str(ratings), "--rounds", "5", "-o", "embedding_size=4")
    train = ("-m", "solera", "train", "pfedrec", *options, "--out")
    alone = [sys.executable, *train, str(tmp_path / "alone"), "--workers", "1"]
    assert subprocess.run(alone, capture_output=True, check=False).returncode == 0
    with two_hosts(DELAY) as hosts:
        assert _round_trip(*hosts) >= 2 * DELAY
        launched = [
            host.start(
                [
                    *(
                        sys.executable,
                        "-m",
                        "torch.distributed.run",
                        "--nnodes",
                        "2",
                        "--nproc-per-node",
                        "1",
                    ),
                    *("--rdzv-backend", "c10d", "--rdzv-id", "solera"),
                    *("--rdzv-conf", f"is_host={int(host is hosts[0])}"),  # neither has a name
                    *("--rdzv-endpoint", f"{hosts[0].address}:29400", "--local-addr", host.address),
                    *(*train, str(tmp_path / "both")),
                ]
            )
            for host in hosts
        ]
        assert [each.wait(timeout=300) for each in launched] == [0, 0]
    same(content(tmp_path / "alone"), content(tmp_path / "both"))


def _round_trip(one, other) -> float:
    """Seconds for a byte to go to the other host and back, over TCP."""
    echo = "import socket; s = socket.create_server(('', 7000)); c, _ = s.accept(); c.sendall(c.recv(1))"
    ask = (
        f"import socket, time; c = socket.create_connection(('{other.address}', 7000)); "
        "b = time.monotonic(); c.sendall(b'x'); c.recv(1); print(time.monotonic() - b)"
    )
    server = other.start([sys.executable, "-c", echo])
    time.sleep(1)
    asked = one.start([sys.executable, "-c", ask], stdout=subprocess.PIPE, text=True)
    found = asked.communicate(timeout=30)[0]
    server.wait(timeout=30)
    return float(found)
