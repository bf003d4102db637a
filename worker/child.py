"""Serves batches in a pool child until its socket closes.

A child owns no Redis connection, leads its own process group (so that its
whole tree can be killed), dies with its parent and is the first that the
kernel's OOM killer takes.
"""

import os
import signal
import socket
from dataclasses import asdict

from tasks.catalog import load_kinds
from tasks.store import Store
from worker.batch import BatchRunner
from worker.frames import BatchRequest, encode
from worker.process import die_with_parent, volunteer_for_the_oom_killer
from worker.settings import Settings


def serve(channel: socket.socket, settings: Settings, parent_pid: int) -> None:
    """Run the batches that arrive on the channel, one after the other; returns when it closes."""
    _settle_in(parent_pid)
    runner = BatchRunner(load_kinds(settings.kind_modules), Store(settings.store, settings.import_roots))
    for line in channel.makefile("rb"):
        request = BatchRequest.from_line(line)

        def emit(index: int, outcome: dict[str, object], batch_id: str = request.batch_id) -> None:
            channel.sendall(encode({"batch_id": batch_id, "index": index, "outcome": outcome}))

        report = runner.run(request, emit)
        channel.sendall(encode({"batch_id": request.batch_id, "report": asdict(report)}))


def _settle_in(parent_pid: int) -> None:
    os.setpgid(0, 0)
    die_with_parent(parent_pid)
    volunteer_for_the_oom_killer()
    # The terminal's Ctrl-C is for the main process, which ends the children itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
