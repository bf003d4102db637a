"""Holds the project store: the only code that touches the files of a project."""

from tasks.store.canonical import Json, canonical_json
from tasks.store.keys import ArtefactKey, artefact_key
from tasks.store.photos import Camera, Gps, PhotoRecord
from tasks.store.project import Project, ProjectImage, Source
from tasks.store.store import Store
from tasks.store.tensors import Artefact

__all__ = [
    "Artefact",
    "ArtefactKey",
    "Camera",
    "Gps",
    "Json",
    "PhotoRecord",
    "Project",
    "ProjectImage",
    "Source",
    "Store",
    "artefact_key",
    "canonical_json",
]
