"""Serves batches in a pool child until its socket closes.

A child owns no Redis connection, keeps what its jobs start below itself (so that
its whole tree can be killed), dies with its parent and is the first that the
kernel's OOM killer takes.
"""

import os
import signal
import socket
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tasks.catalog import load_kinds
from tasks.store import Store
from worker.batch import BatchRunner
from worker.frames import BatchReport, BatchRequest, encode
from worker.memory_meter import MemoryMeter
from worker.process import Note, die_with_parent, volunteer_for_the_oom_killer
from worker.process_tree import adopt_orphans
from worker.settings import Settings


def serve(channel: socket.socket, settings: Settings, parent_pid: int, start: Note) -> None:
    """Run the batches that arrive on the channel, one after the other; returns when it closes.

    ``start`` is told the resident bytes of this process before each batch.
    """
    _settle_in(parent_pid)
    kinds, store = load_kinds(settings.kind_modules), Store(settings.store, settings.import_roots)
    runner = BatchRunner(kinds, store, MemoryMeter(start.write))
    runner.listen()
    for line in channel.makefile("rb"):
        request = BatchRequest.from_line(line)
        answer = Answer(channel.sendall, request)
        answer.report(runner.run(request, answer.outcome, answer.warm))


class Answer:
    """What a child says of one batch: each outcome at once, but the last in one write with the report.

    A callback ends with its last outcome, as a rule: two writes would wake the
    main process twice, which is much of what a small job costs.
    """

    def __init__(self, send: Callable[[bytes], None], request: BatchRequest) -> None:
        self._send = send
        self._batch_id = request.batch_id
        self._open = len(request.payloads)
        self._held = b""

    def warm(self) -> None:
        """Tell that the time of the first item begins."""
        self._send(encode({"batch_id": self._batch_id, "is_warm": True}))

    def outcome(self, index: int, outcome: dict[str, Any]) -> None:
        """Send the outcome of one item; hold the last."""
        frame = encode({"batch_id": self._batch_id, "index": index, "outcome": outcome})
        self._open -= 1
        if self._open:
            self._send(frame)
        else:
            self._held = frame

    def report(self, report: BatchReport) -> None:
        """Send what was measured, and what was held."""
        self._send(self._held + encode({"batch_id": self._batch_id, "report": asdict(report)}))


def _settle_in(parent_pid: int) -> None:
    os.setpgid(0, 0)
    die_with_parent(parent_pid)
    adopt_orphans()
    volunteer_for_the_oom_killer()
    # The terminal's Ctrl-C is for the main process, which ends the children itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
