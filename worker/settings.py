"""Reads the settings of a node from the environment; the only reader of it.

Every setting is ``TIEPOINT_<NAME>``; the command line writes the same names
for the processes it starts. Does not cover the parameters of a project
(:mod:`tasks.parameters`).
"""

import json
import os
import re
import socket
from math import inf
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from worker.planning_settings import PlanningSettings
from worker.queue_url import checked_url

PREFIX = "TIEPOINT_"
ProfileName = Literal["interactive", "dedicated"]
_LONGEST_NAME = 64
_PASSWORD = re.compile(r"""^(['"](?:[a-z+]+://:?)?).*@""", re.IGNORECASE)
"""What the queue's URL, quoted, says before its last ``@``: no message may show it, however wrong it is."""


class WrongSettingError(Exception):
    """A setting makes no sense; the text names its variable, its value and what is wrong."""


def name_of_host(host: str) -> str:
    """Return a host's name as a node may be called: other characters become "-", what is too long is cut."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", host).lstrip("._-")[:_LONGEST_NAME] or "node"


def _default_name() -> str:
    return name_of_host(socket.gethostname())


class CheckedSettings(BaseSettings):
    """Settings whose faults are told in one sentence."""

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Return settings of these values, the rest read from the environment.

        Raises:
            WrongSettingError: one of them makes no sense.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            variable = PREFIX + str(first["loc"][0]).upper()
            wrong = first["msg"].removeprefix("Value error, ")
            given = repr(first["input"])
            if variable == f"{PREFIX}PLANNING":
                # Nested as in a file: say the whole path, and of a table only what is wrong with it.
                path = ".".join(map(str, first["loc"]))
                told = wrong if isinstance(first["input"], dict) else f"{path}: {given}: {wrong}"
                raise WrongSettingError(told) from error
            if variable == f"{PREFIX}BROKER_URL":
                given = _PASSWORD.sub(r"\1...@", given)
            raise WrongSettingError(f"{variable}: {given}: {wrong}") from error
        except SettingsError as error:
            raise WrongSettingError(f'{error}: lists are JSON, like ["/photos"]') from error


class Settings(CheckedSettings):
    """What one node is told from outside; frozen, validated at start."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    # It may hold a password, and Celery shows these settings to whoever may inspect a worker.
    broker_url: str = Field(default="redis://127.0.0.1:6379/0", repr=False)
    """``redis://``, ``rediss://`` or ``redis+socket:///path``."""
    store: Path = Path("tiepoint-store")
    """Root of the project store."""
    import_roots: tuple[Path, ...] = ()
    """Folders that photos may be imported from, besides the store."""
    name: str = Field(default_factory=_default_name, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Stable name of the node; see :attr:`is_named`."""
    memory_bytes: int | None = Field(default=None, ge=1)
    """Partition: use at most this much RAM."""
    cpus: int | None = Field(default=None, ge=1)
    """Partition: use at most this many CPU threads."""
    profile: ProfileName = "interactive"
    lease_seconds: float = Field(default=10.0, ge=0.2, le=600.0)
    single_node: bool = False
    """No other node will come: an item too large for this one fails instead of waiting."""
    kind_modules: tuple[str, ...] = ()
    """Modules whose ``KINDS`` join the catalogue (the public hook for own kinds)."""
    time_limits: dict[str, tuple[float, float]] = Field(default={})
    """Soft and hard seconds that one item of a kind may be at work; a kind that is not named has its own."""
    planning: PlanningSettings | None = None
    """How durations are planned; None = they are not."""
    durations: Path | None = None
    """File that is told how long each batch of real work took, for ``calibrate``; None = none is."""
    lock_folder: Path | None = None
    """Where the workers of this machine find each other; None is what :mod:`worker.machine` says."""

    @field_validator("broker_url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        return checked_url(url)

    @field_validator("time_limits")
    @classmethod
    def _soft_before_hard(cls, limits: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        wrong = sorted(kind for kind, (soft, hard) in limits.items() if not 0 < soft <= hard < inf)
        if wrong:
            raise ValueError(f"of {', '.join(wrong)}: first the soft limit, then the hard one, above 0")
        return limits

    @property
    def is_named(self) -> bool:
        """Tell whether the name was chosen, and does not just follow from the host's."""
        return "name" in self.model_fields_set

    @property
    def redis_url(self) -> str:
        """Return the broker's URL in redis-py's spelling (a socket is ``unix://`` there)."""
        return self.broker_url.replace("redis+socket://", "unix://", 1)

    def to_environment(self) -> dict[str, str]:
        """Return the variables that say these same settings; what is not set, or not chosen, has none."""
        follows = set() if self.is_named else {"name"}
        dumped = self.model_dump(mode="json", exclude_none=True, exclude=follows)
        return {
            PREFIX + name.upper(): value if isinstance(value, str) else json.dumps(value)
            for name, value in dumped.items()
        }

    def child_environment(self) -> dict[str, str]:
        """Return the environment in which a child process reads these same settings.

        It is this process's, without any setting in it: one that is not set
        here must not come back from whoever started us.
        """
        names = {PREFIX + name.upper() for name in type(self).model_fields}
        inherited = {name: value for name, value in os.environ.items() if name.upper() not in names}
        return inherited | self.to_environment()


class FlowerSettings(CheckedSettings):
    """Who may look at Flower; beside :class:`Settings`, which holds the queue."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    flower_users: str = Field(default="", repr=False)
    """``NAME:PASSWORD``, one per line; none: everybody who reaches its port may look, and nothing else."""

    @property
    def users(self) -> list[str]:
        """Return each ``NAME:PASSWORD``."""
        return [line.strip() for line in self.flower_users.splitlines() if line.strip()]
