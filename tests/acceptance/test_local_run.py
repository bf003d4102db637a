"""``tiepoint run`` over real photos: the same tracks as the plain stages, whatever is killed on the way."""

import signal
from pathlib import Path

import psutil
import pytest

from tests.acceptance.conftest import (
    DEADLINE_SECONDS,
    artefacts,
    family,
    find,
    start_tiepoint,
    tiepoint,
    wait_until,
)
from tests.conftest import PhotoSet
from tests.plain_runner import PlainResult

DEDICATED = ("--profile", "dedicated")


@pytest.mark.parametrize("cpus", ["1", "2"])
def test_a_run_equals_the_plain_stages(
    plain_kermit: PlainResult, photos: PhotoSet, tmp_path: Path, cpus: str
) -> None:
    """Same bytes of tracks for any number of CPU threads, within the reservations, all images registered."""
    done = tiepoint("run", photos("kermit"), "--project", tmp_path, "--cpus", cpus, "--json", *DEDICATED)
    summary = done.summary

    assert done.returncode == 0
    assert summary["tracks_sha256"] == plain_kermit.tracks_sha256
    assert [model["registered_images"] for model in summary["models"]] == [11]
    assert summary["jobs"]["failed"] == summary["jobs"]["retried"] == 0
    assert all(kind["worst_ratio"] <= 1 for kind in summary["kinds"].values())
    assert summary["peak_memory_bytes"] > 0


def test_the_json_has_what_scripts_are_promised(photos: PhotoSet, tmp_path: Path) -> None:
    """The keys of `run --json`, one object on standard output and nothing else."""
    done = tiepoint(
        "run", photos("kermit"), "--project", tmp_path, "--until", "features", "--json", *DEDICATED
    )

    assert done.stdout.count("\n") == 1
    assert set(done.summary) >= {
        "project", "images", "features", "pairs", "verified_pairs", "tracks", "observations", "models",
        "tracks_sha256", "seconds", "jobs", "kinds", "peak_memory_bytes", "failures",
    }  # fmt: skip
    assert done.summary["images"] == {"imported": 11, "failed": 0}
    assert done.summary["features"] > 0
    assert done.summary["tracks"] == 0


def test_two_scenes_in_one_folder_become_two_models(photos: PhotoSet, tmp_path: Path) -> None:
    """Photos that do not connect are no error."""
    done = tiepoint("run", photos("mixed_et_kermit"), "--project", tmp_path, "--json", *DEDICATED)

    assert done.returncode == 0
    assert [model["registered_images"] for model in done.summary["models"]] == [11, 9]


def test_killed_children_and_a_killed_worker_change_nothing(
    plain_kermit: PlainResult, photos: PhotoSet, tmp_path: Path
) -> None:
    """SIGKILL a child, then the worker: `run` says how to go on, `resume` ends with the same bytes."""
    run = start_tiepoint("run", photos("kermit"), "--project", tmp_path, "--json", *DEDICATED)
    wait_until(lambda: artefacts(tmp_path, "features.extract.rootsift") >= 2, "features appear")
    spawner = find(family(run.pid), "worker.spawner")[0]
    spawner.children()[0].kill()
    wait_until(lambda: artefacts(tmp_path, "matcher.run") >= 3, "matches appear")
    find(family(run.pid), "worker.start")[0].kill()
    _, told = run.communicate(timeout=DEADLINE_SECONDS)

    assert run.returncode == 1
    assert f"tiepoint resume {tmp_path}" in told.replace("\n", "")
    resumed = tiepoint("resume", tmp_path, "--json", *DEDICATED)
    assert resumed.returncode == 0
    assert resumed.summary["tracks_sha256"] == plain_kermit.tracks_sha256
    assert resumed.summary["models"][0]["registered_images"] == 11


def test_nothing_lives_on_after_run_itself_is_killed(
    plain_kermit: PlainResult, photos: PhotoSet, tmp_path: Path
) -> None:
    """SIGKILL of `run`: server, worker and children are gone within seconds; `resume` need not wait."""
    run = start_tiepoint("run", photos("kermit"), "--project", tmp_path, *DEDICATED)
    wait_until(lambda: artefacts(tmp_path, "matcher.run") >= 3, "matches appear")
    everyone = family(run.pid)
    run.kill()
    run.communicate()
    resumed = tiepoint("resume", tmp_path, "--json", *DEDICATED)

    assert len(everyone) >= 5
    assert not any(_is_alive(process) for process in everyone)
    assert resumed.returncode == 0
    assert resumed.summary["tracks_sha256"] == plain_kermit.tracks_sha256


@pytest.mark.parametrize(
    ("signum", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_cleanly_and_the_run_can_be_resumed(
    plain_kermit: PlainResult, photos: PhotoSet, tmp_path: Path, signum: signal.Signals, exit_code: int
) -> None:
    """Ctrl-C, a service manager, a closed terminal: no process, socket or temporary file left."""
    scratch = tmp_path / "t"
    scratch.mkdir()
    project = tmp_path / "p"
    run = start_tiepoint("run", photos("kermit"), "--project", project, *DEDICATED, TMPDIR=str(scratch))
    wait_until(lambda: artefacts(project, "features.extract.rootsift") >= 1, "work has begun")
    everyone = family(run.pid)
    run.send_signal(signum)
    _, told = run.communicate(timeout=DEADLINE_SECONDS)

    assert run.returncode == exit_code
    assert f"`tiepoint resume {project}` finishes the project" in told
    wait_until(lambda: not any(_is_alive(process) for process in everyone), "all are gone")
    assert list(scratch.iterdir()) == []
    assert [path for path in project.rglob("*") if ".tmp-" in path.name] == []
    resumed = tiepoint("resume", project, "--json", *DEDICATED)
    assert resumed.summary["tracks_sha256"] == plain_kermit.tracks_sha256


def test_a_killed_server_is_told_in_a_sentence_and_the_run_can_be_resumed(
    plain_kermit: PlainResult, photos: PhotoSet, tmp_path: Path
) -> None:
    """Exit code 1, the cause, the command that goes on; no process and no temporary file left."""
    scratch = tmp_path / "t"
    scratch.mkdir()
    project = tmp_path / "p"
    run = start_tiepoint("run", photos("kermit"), "--project", project, *DEDICATED, TMPDIR=str(scratch))
    wait_until(lambda: artefacts(project, "features.extract.rootsift") >= 1, "work has begun")
    everyone = family(run.pid)
    find(everyone, "redis.sock")[0].kill()
    _, told = run.communicate(timeout=DEADLINE_SECONDS)

    assert run.returncode == 1
    ended = "error: the embedded server ended (killed by SIGKILL)"
    assert f"{ended}; finish the project with: tiepoint resume {project}" in told
    assert "Traceback" not in told
    wait_until(lambda: not any(_is_alive(process) for process in everyone), "all are gone")
    assert list(scratch.iterdir()) == []
    resumed = tiepoint("resume", project, "--json", *DEDICATED)
    assert resumed.summary["tracks_sha256"] == plain_kermit.tracks_sha256


def test_a_second_run_in_a_folder_is_refused_until_the_first_has_ended(
    photos: PhotoSet, tmp_path: Path
) -> None:
    """Even if the first was killed."""
    run = start_tiepoint("run", photos("kermit"), "--project", tmp_path, *DEDICATED)
    wait_until(lambda: artefacts(tmp_path, "features.extract.rootsift") >= 1, "work has begun")
    refused = [
        tiepoint("run", photos("kermit"), "--project", tmp_path, *DEDICATED),
        tiepoint("resume", tmp_path, *DEDICATED),
    ]
    looked = tiepoint("status", tmp_path, "--json")
    run.kill()
    run.communicate()
    after = tiepoint("resume", tmp_path, "--until", "import", *DEDICATED)

    assert [done.returncode for done in refused] == [2, 2]
    assert all(f"another run is working in {tmp_path}" in done.stderr for done in refused)
    assert all(len(done.stderr.splitlines()) == 1 for done in refused)
    assert (looked.returncode, after.returncode) == (0, 0)


def test_the_end_says_where_the_results_are_and_what_comes_next(photos: PhotoSet, tmp_path: Path) -> None:
    """And the beginning, that a project is continued; scripts get the object alone."""
    arguments = ("run", photos("kermit"), "--project", tmp_path, "--until", "import", *DEDICATED)
    first, again, script = tiepoint(*arguments), tiepoint(*arguments), tiepoint(*arguments, "--json")

    told = f"results in {tmp_path}; `tiepoint resume {tmp_path}` does the rest"
    assert [told in done.stderr for done in (first, again, script)] == [True, True, False]
    continuing = f"continuing the project in {tmp_path}"
    assert [continuing in done.stderr for done in (first, again, script)] == [False, True, True]


def test_a_finished_run_leaves_nothing_behind(photos: PhotoSet, tmp_path: Path) -> None:
    """No temporary file outside of the project, no process."""
    scratch = tmp_path / "t"
    scratch.mkdir()
    project = tmp_path / "p"
    run = start_tiepoint(
        "run", photos("kermit"), "--project", project, "--until", "features", *DEDICATED, TMPDIR=str(scratch)
    )
    wait_until(lambda: artefacts(project, "features.extract.rootsift") >= 1, "work has begun")
    everyone = family(run.pid)
    run.communicate(timeout=DEADLINE_SECONDS)

    assert run.returncode == 0
    wait_until(lambda: not any(_is_alive(process) for process in everyone), "all are gone")
    assert list(scratch.iterdir()) == []


def test_resuming_a_finished_project_does_nothing_and_says_so(photos: PhotoSet, tmp_path: Path) -> None:
    """All artefacts are there: only planning runs."""
    first = tiepoint("run", photos("kermit"), "--project", tmp_path, "--json", *DEDICATED)
    again = tiepoint("resume", tmp_path, "--json", *DEDICATED)

    assert again.summary["tracks_sha256"] == first.summary["tracks_sha256"]
    assert again.summary["jobs"] == {"done": 0, "failed": 0, "retried": 0}
    assert set(again.summary["kinds"]) == {"pipeline.expand"}


def test_a_deleted_artefact_is_made_again(
    plain_kermit: PlainResult, photos: PhotoSet, tmp_path: Path
) -> None:
    """The store is repaired from what is left: features and matches that vanish or rot."""
    tiepoint("run", photos("kermit"), "--project", tmp_path, *DEDICATED)
    features = sorted((tmp_path / "artefacts/features.extract.rootsift").rglob("*.safetensors"))
    geometry = sorted((tmp_path / "artefacts/geometric_verifier.run").rglob("*.safetensors"))
    features[0].write_bytes(features[0].read_bytes()[:-100])
    for path in geometry[:3]:
        path.unlink()
    next((tmp_path / "artefacts/track_builder.run").rglob("*.safetensors")).unlink()
    resumed = tiepoint("resume", tmp_path, "--json", *DEDICATED)

    assert resumed.returncode == 0
    assert resumed.summary["tracks_sha256"] == plain_kermit.tracks_sha256


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "/no/such/folder"], "is not a folder"),
        (["run", "{empty}"], "there is no photo in"),
        (["resume", "{empty}"], "holds no project"),
        (["status", "{empty}"], "holds no project"),
        (["run", "{photos}", "--project", "{occupied}"], "is not empty and holds no project"),
        (["run", "{photos}", "--memory", "plenty"], "is not an amount of memory"),
    ],
)
def test_wrong_usage_gets_one_clear_sentence(
    photos: PhotoSet, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    """Exit code 2, no traceback, no server started."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "letter.txt").write_text("dear")
    names = {name: str(tmp_path / name) for name in ("empty", "occupied")}
    done = tiepoint(*[part.format(photos=photos("kermit"), **names) for part in arguments])

    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_another_project_is_not_mixed_into_a_folder(photos: PhotoSet, tmp_path: Path) -> None:
    """The same folder with other parameters is refused."""
    tiepoint("run", photos("kermit"), "--project", tmp_path, "--until", "import", *DEDICATED)
    other = tiepoint("run", photos("kermit"), "--project", tmp_path, "--features", "orb", *DEDICATED)

    assert other.returncode == 2


def test_status_tells_from_the_folder_alone(photos: PhotoSet, tmp_path: Path) -> None:
    """A half-done project can be looked at without a server."""
    tiepoint("run", photos("kermit"), "--project", tmp_path, "--until", "matching", *DEDICATED)
    told = tiepoint("status", tmp_path, "--json").summary

    assert told["images"]["imported"] == 11
    assert told["pairs"] == 55
    assert told["verified_pairs"] > 30
    assert told["models"] == []


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
