"""The strategies of a project have one form, and senseless ones are refused with a reason."""

import pytest
from pydantic import ValidationError

from tasks.parameters import PAIR_STRATEGIES, PairParameters, canonical_strategies


@pytest.mark.parametrize("strategy", PAIR_STRATEGIES)
def test_each_strategy_may_stand_alone(strategy: str) -> None:
    """As it is."""
    assert PairParameters(strategy=strategy).strategy == strategy


@pytest.mark.parametrize("text", ["spatial,retrieval", " retrieval , spatial", "retrieval,spatial,retrieval"])
def test_a_union_has_one_form(text: str) -> None:
    """However it is written, it names the same artefacts."""
    parameters = PairParameters(strategy=text)

    assert parameters.strategy == "retrieval,spatial"
    assert parameters.strategies == {"retrieval", "spatial"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("auto,spatial", "auto chooses by itself"),
        ("similar", "'similar' is no pair strategy"),
        ("", "'' is no pair strategy"),
        ("retrieval,", "'' is no pair strategy"),
    ],
)
def test_nonsense_is_refused_with_its_reason(text: str, reason: str) -> None:
    """In the words that the command line shows."""
    with pytest.raises(ValueError, match=reason):
        canonical_strategies(text)
    with pytest.raises(ValidationError, match=reason):
        PairParameters(strategy=text)
