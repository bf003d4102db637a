"""Runs a worker of one thread for the live streams of a ramp, sends it their photos, and hears of results.

A real server, a real worker, real kinds; every job has work to do, for each
asks for another greatest number of features. Does not cover which runs there
are (:mod:`worker.ramp`).
"""

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from celery import Celery

from tasks.demo_scene import PHOTOS_FOLDER, render_scene
from tasks.parameters import FeatureParameters, ProjectParameters
from tasks.photo_folder import find_photos
from tasks.store import Project, Store
from worker.contracts import CLASSES
from worker.embedded import embedded_server
from worker.local_run import (
    GovernedWorker,
    LocalOptions,
    RunError,
    check_machine,
    governed_worker,
    part_of_machine,
)
from worker.planning_settings import PlanningSettings
from worker.project_queue import ProjectQueue
from worker.ramp_streams import NS_PER_MS, Delivery, Frame, LiveStream

OPTIONS = LocalOptions(cpus=1, profile="dedicated")
"""One slot, as in the simulation."""
_NODE = "ramp"
_PATIENCE_SECONDS = 60.0
_DRAIN_SECONDS = 5.0
_MOST_FEATURES = FeatureParameters().max_features
_CLASS_NAMES = {service_class: name for name, service_class in CLASSES.items()}


class RampScene:
    """A server and photos; enter it, run one worker after the other."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._workers = 0

    def __enter__(self) -> Self:
        check_machine(OPTIONS)
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="tiepoint-ramp-")))
        self._broker_url = self._stack.enter_context(embedded_server()).broker_url
        render_scene(self.folder)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def worker(self, planning: PlanningSettings | None, durations: Path | None = None) -> Iterator["Live"]:
        """Run a worker whose store holds the photos and nothing else; what it learns stays on the server."""
        self._workers += 1
        name = f"photos-{self._workers}"
        store, photos = Store(self.folder / name), self.folder / PHOTOS_FOLDER
        settings = part_of_machine(
            OPTIONS,
            broker_url=self._broker_url,
            store=store.root,
            import_roots=(photos,),
            name=_NODE,
            planning=planning,
            durations=durations,
        )
        with ExitStack() as stack:
            queue = stack.enter_context(closing(ProjectQueue(settings.redis_url)))
            project = _project_of(store, photos, name)
            stack.callback(shutil.rmtree, store.root)
            app = stack.enter_context(Celery(broker=self._broker_url, set_as_current=False))
            completions = stack.enter_context(closing(Completions(app)))
            worker = stack.enter_context(governed_worker(settings, self.folder / "worker.log"))
            queue.start(project.id, until="import")
            live = Live(app=app, queue=queue, worker=worker, completions=completions)
            live.wait_until(lambda: queue.state(project.id).state == "done", "photos are imported")
            live.contents = [image.content for image in project.images()]
            yield live


@dataclass(slots=True, kw_only=True)
class Live:
    """A worker that is ready for live jobs."""

    app: Celery
    queue: ProjectQueue
    worker: GovernedWorker
    completions: "Completions"
    contents: Sequence[str] = ()
    """Of the photos, once they are imported."""
    _sent: dict[LiveStream, int] = field(default_factory=dict)

    def work(self, stream: LiveStream, jobs: int) -> None:
        """Let a stream's jobs run, each when the one before is done.

        Raises:
            RunError: one did not come to its end.
        """
        for _ in range(jobs):
            job = self._send(stream, {})
            self.wait_until(lambda job=job: job in self.completions.at, "a job is done")  # type: ignore[misc]

    def round_ms(self, streams: Sequence[LiveStream]) -> float:
        """Let one job of each stream run, all sent at once; return how long that took.

        Raises:
            RunError: one did not come to its end.
        """
        started_ns = time.monotonic_ns()
        jobs = {self._send(stream, {}) for stream in streams}
        self.wait_until(lambda: jobs <= self.completions.at.keys(), "a round is done")
        return (time.monotonic_ns() - started_ns) / NS_PER_MS

    def drive(self, frames: Sequence[Frame], period_ms: int) -> list[Delivery]:
        """Send frames as they come; return what was delivered, up to some seconds after the last."""
        sent: dict[str, Frame] = {}
        started = _wall_seconds()
        for frame in frames:
            time.sleep(max(started + frame.arrival_ms / 1000 - _wall_seconds(), 0.0))
            sent[self._send(frame.stream, _headers(frame, period_ms, started))] = frame
        self._drain()
        return [
            Delivery(frame=sent[job], completed_ms=(at - started) * 1000)
            for job, at in self.completions.at.items()
            if job in sent
        ]

    def wait_until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait until something is true.

        Raises:
            RunError: it does not come true, or the worker has ended.
            WrongSettingError: the worker has refused to start.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            self.worker.check("try again")
            if time.monotonic() > deadline:
                raise RunError(f"waited {_PATIENCE_SECONDS:.0f} s in vain until {what}")
            time.sleep(0.002)

    def planning(self) -> dict[str, Any]:
        """Return what the worker tells of its planning; nothing where it plans nothing."""
        return {key: value for node in self.queue.nodes() for key, value in node.planning.items()}

    def _drain(self) -> None:
        deadline, before = time.monotonic() + _DRAIN_SECONDS, -1
        while time.monotonic() < deadline and len(self.completions.at) != before:
            before = len(self.completions.at)
            time.sleep(1.0)

    def _send(self, stream: LiveStream, headers: dict[str, Any]) -> str:
        number = self._sent.get(stream, 0)
        self._sent[stream] = number + 1
        round_number, photo = divmod(number, len(self.contents))
        payload = {
            "image": self.contents[photo],
            "max_image_size_px": stream.max_image_size_px,
            # Far more than there are, and another number each time: no job finds its result there already.
            "max_features": _MOST_FEATURES - round_number,
        }
        priority = int(stream.service_class) if headers else None
        sent = self.app.send_task(
            stream.kind, kwargs=payload, queue=stream.kind, priority=priority, headers=headers
        )
        return str(sent.id)


def _headers(frame: Frame, period_ms: int, started: float) -> dict[str, Any]:
    own_period_ms = period_ms * frame.stream.periods
    return {
        "class": _CLASS_NAMES[frame.stream.service_class],
        "period_ms": own_period_ms,
        "deadline_ms": 3 * own_period_ms // 2,
        "max_age_ms": 2 * own_period_ms,
        "captured_at_ms": int(started * 1000 + frame.captured_ms),
        "supersede_key": frame.stream.name,
    }


def _project_of(store: Store, photos: Path, name: str) -> Project:
    store.create()
    project = store.project(name)
    project.create(ProjectParameters(), find_photos(photos))
    return project


def _wall_seconds() -> float:
    # Captures are told in this time, and so are Celery's events.
    return time.time_ns() / 1e9


class Completions:
    """Hears from Celery's events when jobs have succeeded, by the worker's clock: this machine's."""

    def __init__(self, app: Celery) -> None:
        self.at: dict[str, float] = {}
        self._connection = app.connection_for_read()
        self._receiver: Any = app.events.Receiver(self._connection, handlers={"task-succeeded": self._note})
        self._thread = threading.Thread(target=self._listen, name="completions", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hear no more."""
        self._receiver.should_stop = True
        self._thread.join()
        self._connection.release()

    def _listen(self) -> None:
        self._receiver.capture(limit=None, timeout=None, wakeup=False)

    def _note(self, event: dict[str, Any]) -> None:
        self.at[event["uuid"]] = float(event["timestamp"])
