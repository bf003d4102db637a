"""Holds the machines of a chaos run: each has a worker, which is killed, and started again."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from tests.bench.reliability_body import NODE
from tests.bench.reliability_nodes import Node, Setting, Sort
from worker import tether
from worker.settings import PREFIX

_REPOSITORY = Path(__file__).resolve().parents[2]


class Machine:
    """One machine; ``down`` while its worker is meant not to run."""

    def __init__(self, sort: Sort, setting: Setting) -> None:
        self.sort = sort
        self.name = setting.name
        self.down = True
        self.starts = 0
        self._setting = setting
        self._node: Node | None = None

    @property
    def node(self) -> Node | None:
        """Return its worker; None where none was ever started."""
        return self._node

    @property
    def log_path(self) -> Path:
        """Return what all its workers log to."""
        return self._setting.folder / f"{self.name}.log"

    @property
    def node_name(self) -> str:
        """Return the name that its worker has at the moment."""
        return self._setting.name

    def start(self, *, under_another_name: bool = False) -> None:
        """Start a worker there; what is left of the last one is killed first."""
        self.kill()
        self.starts += 1
        if under_another_name:
            self._setting = replace(self._setting, name=f"{self.name}-{self.starts}")
        command = [*self.sort.command(self._setting.processes), "--hostname", f"{self.node_name}@%h"]
        with self.log_path.open("ab") as log:
            process = tether.start(command, environment=self._environment(), output=log)
        self._node = Node(
            name=self.node_name,
            process=process,
            log_path=self.log_path,
            workers_depth=self.sort.workers_depth,
        )
        self.down = False

    def _environment(self) -> dict[str, str]:
        """Return the worker's environment, without any setting of whoever runs the harness."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        ours = self.sort.environment(self._setting)
        return {**inherited, "PYTHONPATH": str(_REPOSITORY), NODE: self.node_name, **ours}

    def kill(self) -> None:
        """Kill all that runs there, frozen or not."""
        self.down = True
        if self._node is not None:
            for process in self.processes():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._node.process.wait()

    def send(self, signum: int) -> bool:
        """Send a signal to the worker's main process; False where none runs."""
        if self._node is None or self.has_ended():
            return False
        self._node.process.send_signal(signum)
        return True

    def has_ended(self) -> bool:
        """Tell whether its worker's main process has ended."""
        return self._node is None or self._node.process.poll() is not None

    def is_at_work(self) -> bool:
        """Tell whether its worker runs, is meant to, and has got as far as having processes for jobs."""
        return not self.down and not self.has_ended() and bool(self.children())

    def exit_code(self) -> int | None:
        """Return how the worker ended; None while it runs."""
        return None if self._node is None else self._node.process.poll()

    def processes(self) -> list[psutil.Process]:
        """Return the worker's processes, its main process first."""
        with suppress(psutil.NoSuchProcess):
            if self._node is not None:
                main = psutil.Process(self._node.process.pid)
                return [main, *main.children(recursive=True)]
        return []

    def children(self) -> list[psutil.Process]:
        """Return the processes that run jobs."""
        return [] if self._node is None else self._node.children()

    def stop(self, patience_seconds: float) -> int | None:
        """End the worker as a user does; returns its exit code, None where it did not end in time."""
        self.down = True
        self.send(signal.SIGCONT)
        if not self.send(signal.SIGTERM):
            return self.exit_code()
        try:
            return self._node.process.wait(patience_seconds) if self._node else None
        except subprocess.TimeoutExpired:
            return None


def left_behind(folder: Path) -> Iterator[tuple[int, Any]]:
    """Yield the processes that were told of a folder by their environment: pid and command line."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and str(folder) in " ".join(process.environ().values()):
                yield process.pid, process.cmdline()
