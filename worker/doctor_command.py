"""Holds the command ``doctor``: whether a queue and this machine are fit to work, and what to do where not.

Does not cover what is checked (:mod:`worker.doctor`).
"""

import json

import typer
from rich.console import Console
from rich.text import Text

from worker.cluster_options import BrokerOption, StoreOption
from worker.command_endings import EXIT_FAILED, plain_errors
from worker.command_options import JsonOption
from worker.doctor import examine
from worker.findings import Finding, State
from worker.settings import Settings

_STYLES = {State.OK: "green", State.WARNING: "yellow", State.PROBLEM: "red"}


def doctor(broker: BrokerOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check a queue and this machine, and say what to do; without a queue this machine alone."""
    given = {"broker_url": broker, "store": store}
    with plain_errors():
        settings = Settings.checked(**{name: value for name, value in given.items() if value is not None})
    console, findings = Console(soft_wrap=True, highlight=False), []
    for finding in examine(settings):
        findings.append(finding)
        if not as_json:
            console.print(_line(finding))
    if as_json:
        typer.echo(json.dumps({"findings": [finding.to_dict() for finding in findings]}))
    if any(finding.state is State.PROBLEM for finding in findings):
        raise typer.Exit(EXIT_FAILED)


def _line(finding: Finding) -> Text:
    line = Text(f"{finding.state:<8}", style=_STYLES[finding.state])
    cure = f"; {finding.cure}" if finding.cure else ""
    return line.append(f"{finding.name}: {finding.told}{cure}", style="default")
