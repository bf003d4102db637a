"""A job's process goes before its node, and what it has noted outlives it."""

import os
import signal

import pytest

from worker.process import Note, raised_oom_score_adj


@pytest.mark.parametrize(
    ("inherited", "raised"), [(0, 500), (200, 700), (500, 1000), (900, 1000), (-100, 400)]
)
def test_a_job_is_ranked_above_what_its_node_has_inherited(inherited: int, raised: int) -> None:
    """A container may have given all its processes a rank: a fixed one would put the node first."""
    assert raised_oom_score_adj(inherited) == raised


def test_a_note_is_read_when_its_writer_is_dead() -> None:
    """A killed process says nothing any more."""
    note = Note()
    before = note.read()
    pid = os.fork()
    if pid == 0:
        note.write(2**40 + 1)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)

    assert (before, note.read()) == (0, 2**40 + 1)
    note.close()
