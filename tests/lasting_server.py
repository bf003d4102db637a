"""Runs a server that keeps its data: it can be killed, and started again with all it had confirmed."""

import subprocess
from pathlib import Path

import redis

from tests.external_server import wait_until_it_answers
from worker import tether
from worker.connections import plain_client
from worker.embedded import server_program

AOF_GLOB = "appendonlydir/*.incr.aof"
"""Where, below its folder, the server writes down every change, in order."""


class LastingServer:
    """A server with an append-only file on a unix socket; for one thread, and dies with its process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket_path = folder / "r.sock"
        self.redis_url = f"unix://{self.socket_path}"
        self.broker_url = f"redis+socket://{self.socket_path}"
        self.client: redis.Redis = plain_client(self.redis_url)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Return the id of its process; None where it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start, and wait until it answers.

        Raises:
            redis.ConnectionError: it does not answer within 20 s.
        """
        options = ["--port", "0", "--unixsocket", str(self.socket_path), "--dir", str(self.folder)]
        options += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        # Never written anew: the file is the whole history of what was in the server.
        options += ["--auto-aof-rewrite-percentage", "0"]
        with (self.folder / "server.log").open("ab") as log:
            self._process = tether.start([server_program(), *options], output=log)
        wait_until_it_answers(self.redis_url)

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
