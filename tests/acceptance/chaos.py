"""Shows that nothing is lost and nothing doubled, whatever fails, and whatever fails at the same time.

`python -m tests.acceptance.chaos` runs workers over a server that keeps its
data, gives them jobs and projects, and breaks things at random moments: the
same ones for the same seed. Its last line is a summary; exit code 1 says that
something was not as it must be. See docs/reliability.md.
"""

import argparse
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.acceptance.chaos_faults import FAULTS
from tests.acceptance.chaos_play import Play, take_down
from tests.acceptance.chaos_projects import Expected, projects, undisturbed
from tests.acceptance.chaos_scene import JOB_PREFIX, Scene, SceneOptions, say, scene
from tests.acceptance.chaos_schedule import Chance, schedule, single
from tests.bench.reliability_nodes import STOCK, TIEPOINT
from tests.conftest import photos_root

_ROUND_SECONDS = 4.0
"""Within so long the fault of a round happens."""


def main(arguments: Sequence[str]) -> int:
    """Play one run per seed; 0 where all was as it must be."""
    options = _parser().parse_args(arguments)
    seeds = options.seed or [random.SystemRandom().randrange(10**6)]
    parent = options.folder or Path(tempfile.mkdtemp(prefix="tiepoint-chaos-"))
    expected = _expected(options, parent)
    failed = [seed for seed in seeds if not _is_well(options, seed, parent / f"seed{seed}", expected)]
    if not failed and not options.folder:
        shutil.rmtree(parent)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.chaos", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, nargs="*", help="one run for each (default: any)")
    add("--runs", type=int, default=1, help="with as many seeds, where none is given")
    add("--seconds", type=float, default=90.0, help="for how long things break")
    add("--rate", type=float, default=0.5, help="moments of faults per second")
    add("--workers", type=int, default=3)
    add("--processes", type=int, default=2, help="jobs at a time, of each worker")
    add("--lease", type=float, default=2.0, help="seconds; stock waits 5 times as long")
    add("--jobs", type=int, default=300, help="bare jobs (of each round)")
    add("--longest-job", type=float, default=2.0, help="seconds; the shortest takes none")
    add("--rounds", type=int, default=0, help="instead: so many times these jobs and one restart")
    add("--photos", default="kermit", help="the photo set of the projects; empty for none")
    add("--features", default="rootsift,orb,sift", help="one project each")
    add("--faults", default="", help=f"only these, of {','.join(FAULTS)}")
    add("--quiet-seconds", type=float, default=240.0, help="patience after the last fault")
    add("--folder", type=Path, help="for stores and logs (default: a new one, removed where all is well)")
    add("--stock", action="store_true", help="stock Celery instead, with bare jobs only")
    return parser


def _is_well(options: argparse.Namespace, seed: int, folder: Path, expected: Sequence[Expected]) -> bool:
    """Play the run of a seed; its summary is the last thing that is said."""
    folder.mkdir(parents=True)
    say(f"seed {seed}, logs in {folder}")
    started = time.monotonic()
    with scene(_scene_options(options, folder, seed)) as stage, projects(stage, expected) as taken:
        for machine in stage.machines:
            machine.start()
        play = Play(scene=stage, projects=taken, quiet_seconds=options.quiet_seconds)
        _play_all(options, play, seed)
        take_down(stage, play.injected)
        summary = _summary(stage, play, seed) + f" seconds={time.monotonic() - started:.0f}"
    is_well = options.stock or (not stage.problems and taken.verdict != "DIFFERENT")
    if not is_well:
        again = shlex.join(["python", "-m", "tests.acceptance.chaos", *_same(options, seed)])
        say(f"logs are kept in {folder}; the same faults again: {again}")
    say(summary)
    return is_well


def _same(options: argparse.Namespace, seed: int) -> list[str]:
    """Return the arguments of the same run."""
    others = {name: value for name, value in vars(options).items() if name not in {"seed", "runs", "folder"}}
    given = {"seed": seed, **others}
    named = {f"--{name.replace('_', '-')}": value for name, value in given.items()}
    flags = [name for name, value in named.items() if value is True]
    values = [(name, str(value)) for name, value in named.items() if not isinstance(value, bool)]
    return [*flags, *(word for pair in values for word in pair)]


def _expected(options: argparse.Namespace, folder: Path) -> list[Expected]:
    if options.stock or options.rounds or not options.photos:
        return []
    photos = photos_root() / options.photos / "images"
    if not photos.is_dir():
        say(f"the photo set {photos} is not there (TIEPOINT_PHOTOS names another folder): no projects")
        return []
    return undisturbed(photos, options.features.split(","), folder)


def _scene_options(options: argparse.Namespace, folder: Path, seed: int) -> SceneOptions:
    return SceneOptions(
        sort=STOCK if options.stock else TIEPOINT,
        folder=folder,
        workers=options.workers,
        processes=options.processes,
        lease_seconds=options.lease,
        import_root=photos_root(),
        longest_job_seconds=options.longest_job,
        seed=seed,
    )


def _play_all(options: argparse.Namespace, play: Play, seed: int) -> None:
    chances = _chances(options)
    if not options.rounds:
        planned = schedule(seed, chances, seconds=options.seconds, rate=options.rate)
        play.run(planned, jobs=options.jobs, seconds=options.seconds)
        return
    for number in range(options.rounds):
        planned = single(f"{seed}:{number}", chances, seconds=_ROUND_SECONDS)
        if not play.run(planned, jobs=options.jobs, seconds=_ROUND_SECONDS):
            return


def _chances(options: argparse.Namespace) -> dict[str, Chance]:
    """Return what may happen in a run."""
    chosen = options.faults.split(",") if options.faults else _names(options)
    return {name: Chance(weight=FAULTS[name].weight, seconds=FAULTS[name].seconds) for name in chosen}


def _names(options: argparse.Namespace) -> list[str]:
    return [
        name
        for name, kind in FAULTS.items()
        if (kind.is_restart or not options.rounds) and not kind.is_sabotage
    ]


def _summary(stage: Scene, play: Play, seed: int) -> str:
    """Return the last line: what was done, and what has become of the jobs."""
    ledger, ends = stage.ledger, stage.ends()
    jobs = {*ledger.places, *(f"{JOB_PREFIX}{number}" for number in range(stage.sent))}
    again = sum(count > 1 for count in ends.values())
    facts = {
        "seed": seed,
        "queue": stage.options.sort.name,
        "faults": play.injected,
        "overlapping": play.overlapping,
        "transactions": ledger.transactions,
        "jobs": len(jobs),
        "done": len(ends) if stage.is_stock else len(ledger.settled.keys() - ledger.dead.keys()),
        "dead": len(ledger.dead),
        "waiting": len(ledger.waiting),
        "given_back": ledger.given_back,
        "lost": len(stage.lost()),
        # Whatever a stock worker has run to its end counts; ours may run again, and counts once.
        "doubled": again if stage.is_stock else len(ledger.doubled),
        "ran_again": again,
        "tracks": play.projects.verdict,
    }
    return " ".join(f"{name}={value}" for name, value in facts.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
