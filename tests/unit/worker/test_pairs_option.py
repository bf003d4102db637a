"""`--pairs` takes a union of strategies, and says plainly what is no union."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tasks.lacking import PHASES
from tasks.parameters import PAIR_STRATEGIES
from worker.cli import app
from worker.command_options import Features, Pairs, Until, project_parameters, read_pairs


def test_a_union_becomes_the_projects_parameter() -> None:
    """In its one form."""
    parameters = project_parameters(
        Features.ORB, read_pairs("spatial, retrieval"), max_image_size_px=800, max_features=500
    )

    assert parameters.pairs.strategy == "retrieval,spatial"


@pytest.mark.parametrize("text", ["auto,spatial", "similar", ""])
def test_nonsense_is_refused(text: str) -> None:
    """With the reason that the parameters give."""
    with pytest.raises(typer.BadParameter):
        read_pairs(text)


@pytest.mark.parametrize("command", ["run", "submit"])
def test_the_command_line_refuses_nonsense_as_usage(command: str) -> None:
    """Exit code 2, before anything is looked at."""
    done = CliRunner().invoke(app, [command, "/nowhere", "--pairs", "auto,retrieval"])

    assert done.exit_code == 2
    assert "auto chooses by itself" in done.output


def test_spatial_alone_is_refused_where_no_photo_says_where(tmp_path: Path) -> None:
    """Before a project is made."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"\xff\xd8 broken")
    arguments = [
        "run",
        str(tmp_path / "photos"),
        "--pairs",
        "spatial",
        "--project",
        str(tmp_path / "project"),
    ]
    done = CliRunner().invoke(app, arguments)

    assert done.exit_code == 2
    assert not (tmp_path / "project").exists()


def test_every_strategy_and_phase_can_be_named() -> None:
    """The options know what the tasks know."""
    assert list(Pairs) == list(PAIR_STRATEGIES)
    assert list(Until) == list(PHASES)
