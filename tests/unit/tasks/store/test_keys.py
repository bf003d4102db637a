"""Tests of artefact names."""

import pytest

from tasks.parameters import FeatureParameters
from tasks.store import ArtefactKey, artefact_key, canonical_json


def test_the_key_of_given_inputs_never_changes() -> None:
    """A changed naming scheme would silently redo, or worse reuse, everything."""
    key = artefact_key("matcher.run", 1, {"ratio": 0.7, "cross_check": True}, ["a", "b"])

    assert key.digest == "932011e6a19200f9973de29e811070488e5a6e0e227da2f0b5598c6f50b202ae"


@pytest.mark.parametrize(
    "other",
    [
        artefact_key("sift", 1, {"n": 1}, ["a", "b"]),
        artefact_key("orb", 2, {"n": 1}, ["a", "b"]),
        artefact_key("orb", 1, {"n": 2}, ["a", "b"]),
        artefact_key("orb", 1, {"n": 1}, ["b", "a"]),
        artefact_key("orb", 1, {"n": 1}, ["ab"]),
    ],
)
def test_every_part_of_the_identity_changes_the_key(other: ArtefactKey) -> None:
    """Kind, version, parameters, inputs and their order all count."""
    assert artefact_key("orb", 1, {"n": 1}, ["a", "b"]) != other


def test_a_model_and_its_fields_give_the_same_key() -> None:
    """Parameters may come as a pydantic model or as a mapping."""
    model = FeatureParameters()

    assert artefact_key("orb", 1, model, []) == artefact_key("orb", 1, model.model_dump(), [])


@pytest.mark.parametrize("kind", ["", "../x", "A", "x" * 65])
def test_a_kind_that_is_no_safe_folder_name_is_refused(kind: str) -> None:
    """Keys may be made from a message of a stranger."""
    with pytest.raises(ValueError, match="not an artefact key"):
        artefact_key(kind, 1, {}, [])


def test_canonical_json_has_one_form() -> None:
    """Keys are sorted, spaces left out, letters kept."""
    assert canonical_json({"b": [1, 2.5], "a": "ü"}) == '{"a":"ü","b":[1,2.5]}'


def test_canonical_json_refuses_what_json_cannot_say() -> None:
    """NaN would make a name that no other program can compute."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"x": float("nan")})
