"""A Ray cluster on this machine, in a process of its own: `python ray_cluster.py NODES`, `running(NODES)`.

The program prints the cluster's address, kills a node for each line of its standard input, and ends with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
# A worker, which Ray makes the last in turn (15), would starve beside other tests; and what memory they take
# would cost it its life.
ALONE = {"RAY_worker_niceness": "0", "RAY_memory_monitor_refresh_ms": "0"}


@dataclass
class RayCluster:
    """`nodes` machines with one CPU each; the first has the driver and is never killed."""

    address: str
    process: subprocess.Popen[str]

    def kill_node(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.process.stdout.readline()


@contextmanager
def running(nodes: int) -> Iterator[RayCluster]:
    words = [sys.executable, __file__, str(nodes)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(
        words, env={**os.environ, **QUIET, **ALONE}, text=True, **pipes
    ) as process:  # type: ignore[call-overload]
        try:
            assert process.stdout is not None
            yield RayCluster(process.stdout.readline().strip(), process)
        finally:
            process.stdin.close()
            process.wait(60)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - the extra

    args = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 200_000_000}
    cluster = Cluster(initialize_head=True, head_node_args=args)
    nodes = [cluster.add_node(**args) for _ in range(int(sys.argv[1]) - 1)]
    cluster.wait_for_nodes()
    say(cluster.address)
    for _ in sys.stdin:
        cluster.remove_node(nodes.pop(), allow_graceful=False)
        say("gone")
    cluster.shutdown()


if __name__ == "__main__":
    main()
