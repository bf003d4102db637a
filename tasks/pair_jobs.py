"""Holds how the work on a pair of images is named: items, artefact keys, payloads, jobs.

The kinds themselves are in :mod:`tasks.pairs`, :mod:`tasks.matching` and
:mod:`tasks.verification`, each of which needs the names of its neighbours.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from tasks.kind import Job, Payload
from tasks.parameters import FeatureParameters, MatchParameters, VerificationParameters
from tasks.store import ArtefactKey, Project, artefact_key

MATCH_KIND = "matcher.run"
GPU_MATCH_KIND = "matcher.run.gpu"
MATCH_VERSION = 1
MATCH_STAGE = "match"
VERIFY_KIND = "geometric_verifier.run"
VERIFY_VERSION = 1
VERIFY_STAGE = "verify"

Content = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""An image's id: the SHA-256 of its bytes."""


class PairPayload(Payload):
    """Base of the payloads about two images, in the order of their ids."""

    left: Content
    right: Content

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.left >= self.right:
            raise ValueError("left must be smaller than right")
        return self


class MatchPayload(PairPayload):
    """Match the descriptors of two images; with ``project``, verify the pair next."""

    features: FeatureParameters = FeatureParameters()
    matching: MatchParameters = MatchParameters()
    project: str | None = None


class GpuMatchPayload(MatchPayload):
    """Match the ORB descriptors of two images on a GPU; the artefact is that of MatchPayload."""

    @model_validator(mode="after")
    def _check_extractor(self) -> Self:
        if self.features.extractor != "orb":
            raise ValueError("only ORB features are matched on a GPU")
        return self


class VerifyPayload(PairPayload):
    """Verify the matches of two images."""

    features: FeatureParameters = FeatureParameters()
    matching: MatchParameters = MatchParameters()
    verification: VerificationParameters = VerificationParameters()
    project: str | None = None


def pair_item(left: str, right: str) -> str:
    """Return the name of a pair in stage sets, logs and failures."""
    return f"{left}-{right}"


def pair_of_item(item: str) -> tuple[str, str]:
    """Return the two images of a pair's name."""
    left, _, right = item.partition("-")
    return left, right


def matches_key(left: str, right: str, features: FeatureParameters, matching: MatchParameters) -> ArtefactKey:
    """Return the name of the matches of two images, whichever kind has found them."""
    parameters = {"features": features.model_dump(mode="json"), "matching": matching.model_dump(mode="json")}
    return artefact_key(MATCH_KIND, MATCH_VERSION, parameters, (left, right))


def verification_key(
    left: str,
    right: str,
    features: FeatureParameters,
    matching: MatchParameters,
    verification: VerificationParameters,
) -> ArtefactKey:
    """Return the name of the two-view geometry of two images."""
    matches = matches_key(left, right, features, matching)
    return artefact_key(VERIFY_KIND, VERIFY_VERSION, verification, (left, right, matches.digest))


def project_verification_key(project: Project, left: str, right: str) -> ArtefactKey:
    """Return the name of a pair's two-view geometry under the project's parameters."""
    parameters = project.parameters
    return verification_key(left, right, parameters.features, parameters.matching, parameters.verification)


def match_job(project: Project, left: str, right: str) -> Job:
    """Return the job that matches a pair of a project, on a GPU where the project asks for that."""
    on_gpu = project.parameters.execution.matcher == "gpu"
    payload = (GpuMatchPayload if on_gpu else MatchPayload)(
        left=left,
        right=right,
        features=project.parameters.features,
        matching=project.parameters.matching,
        project=project.id,
    )
    return _job(GPU_MATCH_KIND if on_gpu else MATCH_KIND, MATCH_STAGE, project, payload)


def verification_job(project: Project, left: str, right: str) -> Job:
    """Return the job that verifies a pair of a project."""
    payload = VerifyPayload(
        left=left,
        right=right,
        features=project.parameters.features,
        matching=project.parameters.matching,
        verification=project.parameters.verification,
        project=project.id,
    )
    return _job(VERIFY_KIND, VERIFY_STAGE, project, payload)


def _job(kind: str, stage: str, project: Project, payload: PairPayload) -> Job:
    return Job(
        kind=kind,
        payload=payload.model_dump(mode="json"),
        project=project.id,
        stage=stage,
        item=pair_item(payload.left, payload.right),
    )
