"""Holds the command ``dead``: which jobs have failed for good, and of what."""

import json
from collections.abc import Iterator
from typing import Annotated

import typer

from worker.client import Client
from worker.cluster_options import BrokerOption, StoreOption, cluster
from worker.command_endings import plain_errors, say
from worker.command_options import JsonOption
from worker.dead_jobs import DeadJob

KindOption = Annotated[str | None, typer.Option(help="Only jobs of this kind.")]
ProjectOption = Annotated[str | None, typer.Option(help="Only jobs of this project.")]


def dead(
    broker: BrokerOption = None,
    store: StoreOption = None,
    kind: KindOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the jobs of a cluster that have failed for good, the newest first; `retry` puts one back."""
    with plain_errors(), cluster(broker, store) as client:
        jobs = list(_chosen(client, kind, project))
    if as_json:
        typer.echo(json.dumps({"dead": [job.to_dict() for job in jobs]}))
        return
    for job in jobs:
        typer.echo(f"{job.job_id or '(no id)'}  {_called(job)}: {job.sentence()}{job.when()}")
        typer.echo(f"  {job.cause}")
    if not jobs:
        say("no job is dead")


def _chosen(client: Client, kind: str | None, project: str | None) -> Iterator[DeadJob]:
    for job in client.dead():
        is_of_project = project is None or (job.place is not None and job.place.project == project)
        if is_of_project and kind in {None, job.kind}:
            yield job


def _called(job: DeadJob) -> str:
    """Return e.g. "features.extract of IMG_1.jpg in castle"."""
    of_name = f" of {job.name}" if job.name and job.name != job.job_id else ""
    return f"{job.kind}{of_name}{'' if job.place is None else f' in {job.place.project}'}"
