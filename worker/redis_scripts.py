"""Loads the Lua scripts; each is one atomic operation, called by its file's name.

Does not cover what they do: each file says so in its head.
"""

import hashlib
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import redis
from redis.exceptions import NoScriptError

Command = tuple[str | bytes | int, ...]
"""What is sent to Redis: a command's name and its arguments."""


class Script(StrEnum):
    """The scripts in ``worker/scripts``."""

    CANCEL_LIST = "cancel_list"
    CANCEL_PROJECT = "cancel_project"
    CANCEL_SET = "cancel_set"
    CLAIM = "claim"
    CLAIM_LARGE = "claim_large"
    COUNT_JOBS = "count_jobs"
    DRAIN = "drain"
    DRAIN_END = "drain_end"
    FORGET_DEAD = "forget_dead"
    KEEP_FACTORS = "keep_factors"
    PEEK = "peek"
    REGISTER = "register"
    RELEASE = "release"
    RENEW = "renew"
    RETRY_DEAD = "retry_dead"
    SET_ASIDE = "set_aside"
    SETTLE = "settle"
    START_PROJECT = "start_project"


GOES_ON_WHEN_FULL = frozenset(
    {
        Script.CANCEL_LIST,
        Script.CANCEL_PROJECT,
        Script.DRAIN,
        Script.FORGET_DEAD,
        Script.REGISTER,
        Script.RELEASE,
        Script.RENEW,
        Script.SETTLE,
    }
)
"""Would write what a server whose memory is full refuses, and must not be refused: the cluster keeps its
leases, and what ends makes room. The others only move what is there, or (``start_project``) are refused."""


@cache
def source(script: Script) -> str:
    """Return a script's text, what it shares with others in front."""
    folder = files("worker.scripts")
    shared = ["_prelude.lua", *(["_when_full.lua"] if script in GOES_ON_WHEN_FULL else [])]
    return "\n".join((folder / name).read_text("utf-8") for name in (*shared, f"{script}.lua"))


@cache
def _digest(script: Script) -> str:
    """Return the SHA-1 that Redis knows the script by (its protocol, not our choice of hash)."""
    return hashlib.sha1(source(script).encode(), usedforsecurity=False).hexdigest()


def run(client: redis.Redis, script: Script, keys: list[str], *arguments: str | bytes | int) -> Any:
    """Run a script and return its reply; loads it where the server does not know it yet."""
    try:
        return client.evalsha(_digest(script), len(keys), *keys, *arguments)
    except NoScriptError:
        client.script_load(source(script))
        return client.evalsha(_digest(script), len(keys), *keys, *arguments)


def command(script: Script, keys: list[str], *arguments: str | bytes | int) -> Command:
    """Return a script call as a command; its reply is a NoScriptError where the script is unknown."""
    return ("EVALSHA", _digest(script), len(keys), *keys, *arguments)


def load_all(client: redis.Redis) -> None:
    """Make every script known to the server (after a restart it knows none)."""
    for script in Script:
        client.script_load(source(script))
