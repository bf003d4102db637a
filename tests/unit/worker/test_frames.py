"""Frames arrive whole, however the bytes are cut, and say what was sent."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.worker.builders import GRANT, KIND
from worker.frames import BatchRequest, LineBuffer, Place, encode

FRAMES = st.lists(
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9), max_size=3), max_size=5
)


def test_a_request_survives_its_way_to_the_child() -> None:
    """Payloads, places (also none) and the grant are the same on the other side."""
    request = BatchRequest(
        batch_id="1",
        kind=KIND,
        payloads=({"number": 2**60, "names": []}, {}),
        places=(Place(project="p", stage="match", item='a\n"b"'), None),
        grant=GRANT,
    )

    assert BatchRequest.from_line(request.to_line()) == request


def test_a_frame_is_one_line() -> None:
    """Whatever text it holds."""
    assert encode({"text": "a\nb\r\u2028"}).count(b"\n") == 1


@given(frames=FRAMES, cuts=st.lists(st.integers(0, 200), max_size=8))
def test_frames_arrive_whole_however_they_are_cut(frames: list[dict[str, object]], cuts: list[int]) -> None:
    """A stream socket keeps no boundaries."""
    data = b"".join(encode(frame) for frame in frames)
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    buffer = LineBuffer()

    arrived = [frame for begin, end in pairwise(bounds) for frame in buffer.feed(data[begin:end])]

    assert arrived == frames


def test_half_a_frame_is_kept_for_the_rest() -> None:
    """Nothing is reported before its end."""
    buffer = LineBuffer()

    assert list(buffer.feed(b'{"a":')) == []
    assert list(buffer.feed(b'1}\n{"b"')) == [{"a": 1}]


def test_a_line_that_is_no_frame_is_an_error() -> None:
    """A child that prints into its own channel is broken."""
    with pytest.raises(ValueError, match="Expecting value"):
        list(LineBuffer().feed(b"hello\n"))
