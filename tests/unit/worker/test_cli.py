"""The command line refuses what makes no sense with exit code 2 and one sentence, before anything starts."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner, Result

from tasks.parameters import ProjectParameters
from tasks.store import Source, Store
from worker import cli, local_commands, project_commands
from worker.command_endings import EXIT_USAGE, Interrupted, interruptible
from worker.command_options import Until, read_bytes
from worker.live_nodes import LiveNode
from worker.project_state import ProjectState

KIB = 1024


def invoke(*arguments: str | Path) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that would start a server or a worker."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process would have been started")

    monkeypatch.setattr(local_commands, "run_and_summarise", refuse)
    monkeypatch.setattr(os, "execvpe", refuse)


@pytest.mark.parametrize(
    ("text", "amount_bytes"),
    [
        ("1000000000", 10**9),
        ("1B", 1),
        ("512KiB", 512 * KIB),
        ("512kb", 512 * KIB),
        ("512MiB", 512 * KIB**2),
        ("4GiB", 4 * KIB**3),
        ("8G", 8 * KIB**3),
        (" 1.5 GiB ", 3 * KIB**3 // 2),
        ("2T", 2 * KIB**4),
    ],
)
def test_an_amount_of_memory_is_read(text: str, amount_bytes: int) -> None:
    """Powers of 1024, with or without the i."""
    assert read_bytes(text) == amount_bytes


def test_no_amount_is_no_limit() -> None:
    """The option was not given."""
    assert read_bytes(None) is None


@pytest.mark.parametrize(
    "text", ["", "lots", "4 GiB 5", "-4GiB", "4PiB", "4iB", "0", "0GiB", "0.0001B", "1e9"]
)
def test_what_is_no_amount_of_memory_is_refused(text: str) -> None:
    """Nothing, too: a job cannot run in no memory."""
    with pytest.raises(typer.BadParameter, match="is not an amount of memory"):
        read_bytes(text)


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("run", ".", "--memory", "lots"),
        ("run", ".", "--cpus", "0"),
        ("run", ".", "--features", "surf"),
        ("run", ".", "--until", "dense"),
        ("run", ".", "--max-features", "8193"),
        ("run", ".", "--max-image-size", "63"),
        ("run", ".", "--max-image-size", "65536"),
        ("run", ".", "--profile", "greedy"),
        ("resume",),
        ("export", "."),
        ("export", ".", "--format", "obj", "--out", "x"),
        ("worker",),
        ("worker", "--broker", "amqp://host", "--store", "."),
        ("worker", "--broker", "redis://host", "--store", ".", "--name", "a b"),
        ("worker", "--broker", "redis://host", "--store", ".", "--memory", "0"),
        ("submit",),
        ("submit", ".", "--features", "surf"),
        ("watch",),
        ("cancel",),
        ("retry",),
        ("explain",),
        ("no-such-command",),
        ("--no-such-option",),
    ],
)
def test_a_usage_error_ends_with_2(arguments: tuple[str, ...]) -> None:
    """And with a sentence, not a traceback."""
    result = invoke(*arguments)

    assert result.exit_code == EXIT_USAGE
    assert "Traceback" not in result.output
    assert result.output


def test_a_folder_that_is_none_ends_with_2(tmp_path: Path) -> None:
    """The sentence names it."""
    result = invoke("run", tmp_path / "no-such-folder")

    assert result.exit_code == EXIT_USAGE
    assert "no-such-folder" in result.output


def test_a_folder_without_photos_ends_with_2(tmp_path: Path) -> None:
    """There is nothing to make a project of."""
    (tmp_path / "notes.txt").write_text("no photo")
    result = invoke("run", tmp_path)

    assert result.exit_code == EXIT_USAGE
    assert "no photo in" in result.output


@pytest.mark.parametrize("command", ["resume", "status", "export"])
def test_a_folder_that_holds_no_project_ends_with_2(tmp_path: Path, command: str) -> None:
    """The sentence says how to make one."""
    out = ("--out", tmp_path / "out") if command == "export" else ()
    result = invoke(command, tmp_path, *out)

    assert result.exit_code == EXIT_USAGE
    assert "tiepoint run PHOTOS" in result.output.replace("\n", " ")


def test_a_results_folder_that_holds_something_else_is_not_touched(tmp_path: Path) -> None:
    """A typing error must not fill somebody's folder."""
    photos, results = tmp_path / "photos", tmp_path / "results"
    for folder in (photos, results):
        folder.mkdir()
    (photos / "a.jpg").write_bytes(b"\xff\xd8\xff")
    (results / "thesis.tex").write_text("text")
    result = invoke("run", photos, "--project", results)

    assert result.exit_code == EXIT_USAGE
    assert sorted(path.name for path in results.iterdir()) == ["thesis.tex"]


def test_a_path_with_brackets_is_told_as_it_is(tmp_path: Path) -> None:
    """Names are the user's, no markup."""
    result = invoke("resume", tmp_path / "[red]survey[/]")

    assert "[red]survey[/]" in result.output.replace("\n", "")


def test_the_version_is_told_and_the_help_is_shown_without_a_command() -> None:
    """Neither needs a project."""
    version = invoke("--version")

    assert (version.exit_code, version.output.count(".")) == (0, 2)
    assert "Usage" in invoke().output


# -- How it ends ------------------------------------------------------------------------

SIGNALS = [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)]


@pytest.fixture
def _own_signal_handlers() -> Iterator[None]:
    """Heed signals, as a program in front does, and put back what this process did about them."""
    before = {signum: signal.getsignal(signum) for signum, _ in SIGNALS}
    for signum in before:
        signal.signal(signum, signal.SIG_DFL)
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.usefixtures("_own_signal_handlers")
@pytest.mark.parametrize(("signum", "exit_code"), SIGNALS)
def test_a_signal_unwinds_everything_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], signum: int, exit_code: int
) -> None:
    """The exit code is 128 + n; more signals do not disturb the cleaning up."""
    cleaned = []

    def work() -> None:
        with interruptible("begin anew"):
            try:
                signal.raise_signal(signum)
            finally:
                for other, _ in SIGNALS:
                    signal.raise_signal(other)
                cleaned.append(True)

    monkeypatch.setattr(cli, "app", work)
    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == exit_code
    assert cleaned == [True]
    assert "interrupted; begin anew" in capsys.readouterr().err


def test_the_innermost_block_says_how_to_go_on() -> None:
    """It knows what was being done."""
    with pytest.raises(Interrupted) as ended, interruptible("submit again"), interruptible("watch again"):
        raise Interrupted(signal.SIGINT)

    assert ended.value.go_on == "watch again"


@pytest.mark.usefixtures("_own_signal_handlers")
@pytest.mark.parametrize(("signum", "exit_code"), SIGNALS)
def test_a_signal_that_is_ignored_from_the_start_stays_ignored(
    monkeypatch: pytest.MonkeyPatch, signum: int, exit_code: int
) -> None:
    """That is what nohup does."""
    signal.signal(signum, signal.SIG_IGN)
    monkeypatch.setattr(cli, "app", lambda: signal.raise_signal(signum))
    cli.main()

    assert signal.getsignal(signum) is signal.SIG_IGN
    assert exit_code == 128 + signum


@pytest.mark.parametrize(
    ("until", "words"),
    [(Until.MODEL, "tiepoint export 'my photos' --out FOLDER"), (Until.TRACKS, "tiepoint resume")],
)
def test_the_next_step_can_be_copied(until: Until, words: str) -> None:
    """Names with blanks are quoted."""
    assert words in local_commands._next_step(Path("my photos"), until)


def test_a_wrong_setting_in_the_environment_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence that names the variable."""
    monkeypatch.setenv("TIEPOINT_LEASE_SECONDS", "soon")
    result = invoke("worker", "--broker", "redis://host", "--store", tmp_path)

    assert result.exit_code == EXIT_USAGE
    assert "TIEPOINT_LEASE_SECONDS: 'soon'" in result.output
    assert "Traceback" not in result.output


def test_a_worker_reads_from_the_environment_what_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password in a URL need not stand on the command line; an option wins."""
    became: dict[str, str] = {}
    monkeypatch.setattr(os, "execvpe", lambda _file, _command, environment: became.update(environment))
    monkeypatch.setenv("TIEPOINT_BROKER_URL", "redis://:secret@host")
    monkeypatch.setenv("TIEPOINT_STORE", str(tmp_path))
    monkeypatch.setenv("TIEPOINT_IMPORT_ROOTS", json.dumps([str(tmp_path)]))
    monkeypatch.setenv("TIEPOINT_PROFILE", "interactive")
    result = invoke("worker", "--cpus", "1", "--profile", "dedicated")

    assert result.exit_code == 0, result.output
    assert became["TIEPOINT_BROKER_URL"] == "redis://:secret@host"
    assert (became["TIEPOINT_STORE"], json.loads(became["TIEPOINT_IMPORT_ROOTS"])) == (
        str(tmp_path),
        [str(tmp_path)],
    )
    assert (became["TIEPOINT_CPUS"], became["TIEPOINT_PROFILE"]) == ("1", "dedicated")


@pytest.mark.parametrize("missing", ["store", "import root"])
def test_a_worker_refuses_folders_that_are_not_there(tmp_path: Path, missing: str) -> None:
    """A share that is not mounted must not look like an empty one."""
    store = tmp_path if missing == "import root" else tmp_path / "store"
    root = tmp_path if missing == "store" else tmp_path / "photos"

    result = invoke("worker", "--broker", "redis://host", "--store", store, "--import-root", root)

    assert result.exit_code == 2
    assert "is not a folder" in result.stderr


@pytest.mark.parametrize(("imported", "exit_code"), [(0, 1), (1, 3)])
def test_failures_with_nothing_left_are_a_failure(imported: int, exit_code: int) -> None:
    """Exit code 3 promises that there is a result."""
    summary = {"failures": [{}], "images": {"imported": imported}}

    with pytest.raises(typer.Exit) as ended:
        local_commands._finish(summary, None, Until.MODEL, as_json=True)

    assert ended.value.exit_code == exit_code


# -- Clusters ---------------------------------------------------------------------------

CLUSTER_COMMANDS = ["submit", "watch", "cancel", "retry", "explain"]


@pytest.fixture
def _no_cluster_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what the user of this machine has set."""
    for name in ("TIEPOINT_BROKER_URL", "TIEPOINT_STORE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("_no_cluster_in_the_environment")
@pytest.mark.parametrize("command", CLUSTER_COMMANDS)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "which queue? name it with --broker or TIEPOINT_BROKER_URL"),
        (("--broker", "redis://host"), "which store? name it with --store or TIEPOINT_STORE"),
        (("--broker", "redis://host", "--store", "no-such-folder"), "no-such-folder is not a folder"),
        (("--broker", "amqp://host", "--store", "."), "TIEPOINT_BROKER_URL: 'amqp://host'"),
    ],
)
def test_a_cluster_must_be_named_and_seen(command: str, options: tuple[str, ...], words: str) -> None:
    """Neither queue nor store is ever implied."""
    result = invoke(command, "castle", *options)

    assert result.exit_code == EXIT_USAGE
    assert words in result.stderr


@pytest.mark.usefixtures("_no_cluster_in_the_environment")
def test_the_environment_names_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does for workers."""
    monkeypatch.setenv("TIEPOINT_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("TIEPOINT_STORE", str(tmp_path))
    result = invoke("watch", "castle")

    assert result.exit_code == EXIT_USAGE
    assert f"the store {tmp_path} holds no project castle" in result.stderr


@pytest.mark.parametrize("command", ["status", "resume", "export"])
@pytest.mark.parametrize(
    ("options", "in_environment", "is_sought_in"),
    [(("--store", "S"), False, "store"), ((), True, "store"), ((), False, "folder")],
)
def test_a_plain_name_is_a_project_of_the_store_that_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    options: tuple[str, ...],
    in_environment: bool,  # noqa: FBT001 - a table
    is_sought_in: str,
) -> None:
    """Without any it is a folder, as ever."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "S").mkdir()
    monkeypatch.setenv("TIEPOINT_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.delenv("TIEPOINT_STORE", raising=False)
    if in_environment:
        monkeypatch.setenv("TIEPOINT_STORE", "S")
    out = ("--out", "out") if command == "export" else ()
    result = invoke(command, "castle", *options, *out)

    words = {"store": "S holds no project castle", "folder": "castle holds no project; make one"}
    assert result.exit_code == EXIT_USAGE
    assert words[is_sought_in] in result.stderr


def test_a_folder_stays_a_folder_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is one here is not looked for in the store."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "castle").mkdir()
    monkeypatch.setenv("TIEPOINT_STORE", "S")

    assert "castle holds no project; make one" in invoke("status", "castle").stderr


def test_options_of_workers_are_refused_for_a_cluster(tmp_path: Path) -> None:
    """They would be ignored."""
    result = invoke("resume", "castle", "--store", tmp_path, "--memory", "4GiB")

    assert result.exit_code == EXIT_USAGE
    assert "options of the cluster's workers" in result.stderr


@pytest.mark.usefixtures("_no_cluster_in_the_environment")
@pytest.mark.parametrize("command", ["watch", "cancel", "retry", "explain", "dead --kind"])
def test_a_queue_that_does_not_answer_is_told_in_a_sentence(tmp_path: Path, command: str) -> None:
    """With exit code 1: the command was right."""
    project = Store(tmp_path).project("castle")
    project.create(ProjectParameters(), [Source(name="a.jpg", path="/a.jpg")])
    queue = ("--broker", "redis+socket:///no/such/socket", "--store", tmp_path)
    result = invoke(*command.split(), "castle", *queue)

    assert result.exit_code == 1
    assert "error: the queue does not answer" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(("count", "words"), [(0, "0 models"), (1, "1 model"), (2, "2 models")])
def test_one_model_is_not_called_models(count: int, words: str) -> None:
    """What an export says at its end is read by people."""
    assert project_commands._counted(count, "model") == words


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("worker", "TIEPOINT_STORE"),
        ("flower", "TIEPOINT_FLOWER_USERS"),
        ("submit", "TIEPOINT_BROKER_URL"),
        ("run", "NAME.tiepoint"),
        ("demo", "temporary"),
    ],
)
def test_help_names_what_stands_in_for_an_option(command: str, words: str) -> None:
    """Square brackets are markup there: words in them would not be shown."""
    assert words in CliRunner().invoke(cli.app, [command, "--help"], env={"COLUMNS": "200"}).output


@pytest.mark.parametrize(
    ("waits_for", "told"),
    [("the store: /nas is gone; mount it again", True), ("WAIT CPU_PSI: CPU pressure 36 % >= 20 %", False)],
)
def test_status_names_the_nodes_that_wait_for_their_store(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    waits_for: str,
    told: bool,  # noqa: FBT001
) -> None:
    """Nothing else is wrong with such a project; what a busy node waits for is `explain`'s business."""
    store = Store(tmp_path / "store")
    store.create()
    store.project("castle").create(ProjectParameters(), [Source(name="a.jpg", path="/photos/a.jpg")])
    client = SimpleNamespace(
        state=lambda _project: ProjectState(state="running"),
        blocked=lambda _project: [],
        nodes=lambda: [LiveNode(name="pc1", waits_for=waits_for)],
    )
    monkeypatch.setattr(project_commands, "cluster", lambda *_: nullcontext(client))
    done = invoke("status", "castle", "--store", store.root, "--broker", "redis://nas:6379/0")

    assert (done.exit_code, f"node pc1 waits for {waits_for}" in done.stderr) == (0, told)
