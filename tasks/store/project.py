"""Holds one project in the store: its parameters, sources, registered images, failures and result.

The photos and artefacts themselves are shared by all projects of a store.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from tasks.errors import CorruptArtefactError, Failure, MissingArtefactError, ProjectError, Reason, StoreError
from tasks.parameters import ProjectParameters
from tasks.store.canonical import Json, canonical_json
from tasks.store.keys import is_sha256
from tasks.store.publication import (
    TEMPORARY_PREFIX,
    make_folder,
    plain_store_errors,
    publish_file,
    replace_file,
    sync_folder,
    write_bytes,
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Source:
    """One photo of the user, as a project names it."""

    name: str
    """The path relative to the photo folder, with "/"; the image's name in every export."""
    path: str
    """The path of the file: absolute, or relative to the store's root."""

    def __post_init__(self) -> None:
        """Refuse names that could leave an export's folder."""
        if not self.is_valid_name(self.name):
            raise ProjectError(f"{self.name!r} is not a relative path of a photo")

    @staticmethod
    def is_valid_name(name: str) -> bool:
        """Tell whether a name is a relative path that stays in its folder."""
        parts = PurePosixPath(name).parts
        return bool(parts) and parts[0] != "/" and ".." not in parts and "\0" not in name


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ProjectImage:
    """One logical image of a project."""

    name: str
    content: str
    """SHA-256 of the photo."""


class Project:
    """One project of a store; any process and thread may use it.

    Invariant: ``project.json`` is published once and last, so a project that
    exists is complete; every other file is small and written at one stroke.
    """

    def __init__(self, store_root: Path, project_id: str, check_root: Callable[[], None]) -> None:
        self._store_root = store_root
        self._check_root = check_root
        self.id = project_id
        self.path = store_root / "projects" / project_id

    def exists(self) -> bool:
        """Tell whether the project has been created."""
        with plain_store_errors(self._project_file):
            return self._project_file.is_file()

    def create(self, parameters: ProjectParameters, sources: Sequence[Source], *, link: bool = False) -> None:
        """Create the project; the same again is fine, and may be worked on in another way from now on.

        Raises:
            ProjectError: it exists with other parameters or photos.
        """
        sources_text = _sources_text(sources)
        project_text = canonical_json(
            {
                "link": link,
                "parameters": parameters.model_dump(mode="json"),
                "sources_sha256": hashlib.sha256(sources_text.encode()).hexdigest(),
            }
        )
        if not self.exists():
            with plain_store_errors(self._store_root):
                self._store_root.mkdir(parents=True, exist_ok=True)
            # The first wins: two clients that choose one name at the same time must not mix their photos.
            if not self._publish(self._sources_file, sources_text) and self._sources_differ(sources_text):
                raise ProjectError(
                    f"the name {self.id} is taken by other photos that were not submitted to the end; "
                    "choose another name, or submit those"
                )
            self._publish(self._project_file, project_text)
        self._check_same(json.loads(project_text))
        if canonical_json(self._read(self._project_file)) != project_text:
            # Only how the work is done: jobs that wait are done as they were planned.
            self._replace(self._project_file, project_text)
            for name in ("_settings", "parameters"):
                self.__dict__.pop(name, None)

    @cached_property
    def parameters(self) -> ProjectParameters:
        """The parameters the project was created with."""
        try:
            return ProjectParameters.model_validate(self._settings["parameters"])
        except ValidationError as error:
            raise ProjectError(f"project {self.id} was made by another version: {error}") from error

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The photos the project was created with, sorted by name."""
        return tuple(Source(**source) for source in self._read(self._sources_file))

    @property
    def link(self) -> bool:
        """Whether photos stay where they are instead of being copied."""
        return bool(self._settings["link"])

    def register(self, name: str, content: str) -> bool:
        """Register a source name's content; True when its logical image is new to the project.

        A name keeps the content it was first registered with, unless that registration is damaged.
        """
        path = self._registration_file(name)
        text = canonical_json({"name": name, "content": content})
        if not self._publish(path, text) and _registration(self._read_or_none(path)) is None:
            self._replace(path, text)
            self._index_file.unlink(missing_ok=True)
        # Second, so that a crash in between cannot lose the count.
        return self._publish(self.path / "images" / content, "")

    def registrations(self) -> dict[str, str]:
        """Return the content of every registered source name; damaged registrations count as absent."""
        indexed = self._indexed_registrations()
        entries = (
            indexed.get(path.name) or _registration(self._read_or_none(path))
            for path in _files_in(self.path / "registrations")
        )
        return dict(entry for entry in entries if entry is not None)

    def registered_content(self, name: str) -> str | None:
        """Return the content that one source name is registered with; None when it is not."""
        entry = _registration(self._read_or_none(self._registration_file(name)))
        return None if entry is None else entry[1]

    def index_registrations(self) -> None:
        """Write all registrations into one file as well, so that reading them costs one reading.

        The index only saves time: a name that is not in it is read from its
        own file, and one whose own file is gone does not count.
        """
        registrations = self.registrations()
        if len(self._indexed_registrations()) == len(registrations):
            return
        index = {_file_name(name): [name, content] for name, content in registrations.items()}
        self._replace(self._index_file, canonical_json(index))

    def images(self) -> tuple[ProjectImage, ...]:
        """Return the logical images sorted by name, each content once under its smallest name."""
        smallest_names: dict[str, str] = {}
        for name, content in sorted(self.registrations().items()):
            smallest_names.setdefault(content, name)
        return tuple(
            sorted(ProjectImage(name=name, content=content) for content, name in smallest_names.items())
        )

    def record_failure(self, stage: str, item: str, failure: Failure) -> None:
        """Quarantine one item of a stage; a later failure of the same item replaces it."""
        path = self.path / "failures" / _file_name(f"{stage}\n{item}")
        text = canonical_json({"stage": stage, "item": item, "failure": failure.to_dict()})
        self._replace(path, text)

    def failures(self) -> list[tuple[str, str, Failure]]:
        """Return (stage, item, failure) of every quarantined item, sorted; damaged ones do not count."""
        entries = (_failure_entry(self._read_or_none(path)) for path in _files_in(self.path / "failures"))
        return sorted((entry for entry in entries if entry is not None), key=lambda entry: entry[:2])

    def failed_items(self, stage: str) -> set[str]:
        """Return the quarantined items of one stage."""
        return {item for failed_stage, item, _ in self.failures() if failed_stage == stage}

    def clear_failure(self, stage: str, item: str) -> bool:
        """Let one quarantined item be tried again; False where it is not quarantined."""
        path = self.path / "failures" / _file_name(f"{stage}\n{item}")
        with plain_store_errors(self.path):
            is_there = path.is_file()
            if is_there:  # Nothing is written where there is nothing to clear.
                path.unlink(missing_ok=True)
        return is_there

    def clear_failures(self, reason: Reason | None = None) -> None:
        """Let every quarantined item be tried again, or those that failed for one reason."""
        if reason is not None:
            for stage, item, failure in self.failures():
                if failure.reason is reason:
                    self.clear_failure(stage, item)
            return
        with plain_store_errors(self.path):
            for path in _files_in(self.path / "failures"):
                path.unlink(missing_ok=True)

    def write_result(self, result: Mapping[str, Json]) -> None:
        """Write the project's result, replacing an earlier one."""
        self._replace(self.path / "result.json", canonical_json(result))

    def read_result(self) -> dict[str, Any] | None:
        """Return the project's result; None when there is none yet, or it is damaged."""
        result = self._read_or_none(self.path / "result.json")
        return result if isinstance(result, dict) else None

    @property
    def _project_file(self) -> Path:
        return self.path / "project.json"

    @property
    def _sources_file(self) -> Path:
        return self.path / "sources.json"

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return dict(self._read(self._project_file))

    @property
    def _index_file(self) -> Path:
        return self.path / "registrations.json"

    def _registration_file(self, name: str) -> Path:
        return self.path / "registrations" / _file_name(name)

    def _indexed_registrations(self) -> dict[str, tuple[str, str]]:
        """Return (name, content) by the name of the registration's own file."""
        index = self._read_or_none(self._index_file)
        try:
            return {file: (name, content) for file, (name, content) in index.items()}
        except (AttributeError, TypeError, ValueError):
            return {}

    def _check_same(self, wanted: dict[str, Any]) -> None:
        names = {"parameters": "parameters", "sources_sha256": "photos", "link": "--link setting"}
        stored = self._read(self._project_file)
        different = [
            words for key, words in names.items() if _deciding(stored[key]) != _deciding(wanted[key])
        ]
        if different:
            raise ProjectError(
                f"the project that is there has other {' and other '.join(different)}; "
                "resume it as it is, or choose another folder for these"
            )

    def _sources_differ(self, wanted_text: str) -> bool:
        return canonical_json(self._read(self._sources_file)) != wanted_text

    def _publish(self, path: Path, text: str) -> bool:
        with plain_store_errors(path):
            make_folder(self._store_root, path.parent, self._check_root)
            published = publish_file(path, lambda file: write_bytes(file, text.encode()))
            sync_folder(path.parent)
        return published

    def _replace(self, path: Path, text: str) -> None:
        with plain_store_errors(path):
            make_folder(self._store_root, path.parent, self._check_root)
            replace_file(path, lambda file: write_bytes(file, text.encode()))
            sync_folder(path.parent)

    def _read(self, path: Path) -> Any:
        try:
            with plain_store_errors(path):
                return json.loads(path.read_text(encoding="utf-8"))
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise MissingArtefactError(f"{path.name} of project {self.id} is not there") from error
            if isinstance(error, CorruptArtefactError):
                raise self._damaged(path, error) from error
            raise
        except ValueError as error:
            raise self._damaged(path, error) from error

    def _damaged(self, path: Path, error: Exception) -> ProjectError:
        return ProjectError(
            f"{path} is damaged ({error}); delete the folder {self.path} and give the same photos again: "
            "what was made of them is kept"
        )

    def _read_or_none(self, path: Path) -> Any:
        """Read what can be made again; None when it is absent or damaged."""
        try:
            return self._read(path)
        except (MissingArtefactError, ProjectError):
            return None


def _deciding(setting: Any) -> Any:
    """Return what of a setting decides a result."""
    if not isinstance(setting, dict):
        return setting
    return {group: values for group, values in setting.items() if group != "execution"}


def _registration(entry: Any) -> tuple[str, str] | None:
    try:
        name, content = entry["name"], entry["content"]
    except (TypeError, KeyError):
        return None
    return (name, content) if isinstance(name, str) and is_sha256(str(content)) else None


def _failure_entry(entry: Any) -> tuple[str, str, Failure] | None:
    try:
        return entry["stage"], entry["item"], _failure_from_dict(entry["failure"])
    except (TypeError, KeyError, ValueError):
        return None


def _sources_text(sources: Sequence[Source]) -> str:
    ordered = sorted(sources)
    names = [source.name for source in ordered]
    twice = sorted({name for name, following in pairwise(names) if name == following})
    if twice:
        raise ProjectError(f"two photos have the name {twice[0]!r}")
    return canonical_json([asdict(source) for source in ordered])


def _file_name(text: str) -> str:
    """Name a small file after any text: photo names may be long or hold any character."""
    return f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def _files_in(folder: Path) -> Iterator[Path]:
    with plain_store_errors(folder):
        try:
            paths = sorted(folder.iterdir())
        except FileNotFoundError:
            return
    yield from (path for path in paths if not path.name.startswith(TEMPORARY_PREFIX))


def _failure_from_dict(fields: Mapping[str, str]) -> Failure:
    return Failure(
        name=fields["name"],
        reason=Reason(fields["reason"]),
        cause=fields["cause"],
        cure=fields["cure"],
    )
