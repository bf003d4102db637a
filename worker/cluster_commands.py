"""Holds the commands of a cluster: ``submit``, ``watch``, ``cancel``, ``retry``, ``explain``.

Each validates, calls one method of :class:`worker.client.Client` and shows
the result. ``status``, ``resume`` and ``export`` know both sorts of projects
(:mod:`worker.project_commands`).
"""

import json
import shlex
from typing import Annotated

import typer

from tasks.photo_places import check_places
from worker.client import Client
from worker.cluster_options import BrokerOption, StoreOption, cluster
from worker.cluster_watch import Ending, show_ending, show_started_again, watch_to_the_end
from worker.command_endings import errors, interruptible, plain_errors, say
from worker.command_options import (
    Class,
    ClassOption,
    DeadlineOption,
    Features,
    FeaturesOption,
    JsonOption,
    LinkOption,
    Matcher,
    MatcherOption,
    MaxAgeOption,
    MaxFeaturesOption,
    MaxImageSizeOption,
    Pairs,
    PairsOption,
    PhotosArgument,
    Until,
    UntilOption,
    project_contract,
    project_parameters,
)

ProjectName = Annotated[str, typer.Argument(help="The project's name.")]
WatchOption = Annotated[bool, typer.Option("--watch", help="Stay and show the progress, to the end.")]
NameOption = Annotated[str | None, typer.Option(help="The project's name (default: the folder's).")]
JobOrProject = Annotated[str, typer.Argument(help="The project's name, or a job's id.")]


def submit(
    photos: PhotosArgument,
    broker: BrokerOption = None,
    store: StoreOption = None,
    name: NameOption = None,
    features: FeaturesOption = Features.ROOTSIFT,
    pairs: PairsOption = Pairs.AUTO,
    max_image_size: MaxImageSizeOption = 3200,
    max_features: MaxFeaturesOption = 8192,
    matcher: MatcherOption = Matcher.CPU,
    link: LinkOption = False,
    until: UntilOption = Until.MODEL,
    service_class: ClassOption = Class.BEST_EFFORT,
    deadline: DeadlineOption = None,
    max_age: MaxAgeOption = None,
    watch: WatchOption = False,
    as_json: JsonOption = False,
) -> None:
    """Give a folder of photos to a cluster; the same photos again continue their project."""
    with plain_errors():
        parameters = project_parameters(
            features, pairs, max_image_size_px=max_image_size, max_features=max_features, matcher=matcher
        )
        contract = project_contract(service_class, deadline, max_age)
        warning = check_places(photos, parameters.pairs)
    if warning:
        say(warning)
    with (
        plain_errors(),
        interruptible("submit the same photos again to be sure"),
        cluster(broker, store) as client,
    ):
        project_id = client.submit(
            photos, name=name, parameters=parameters, link=link, until=until.value, contract=contract
        )
        if not client.nodes():
            say("no worker is connected yet; the project waits for one")
        ending = _watched(client, project_id) if watch else None
    if ending is not None:
        show_ending(ending, as_json=as_json)
    elif as_json:
        typer.echo(json.dumps({"project": project_id}))
    else:
        typer.echo(project_id)
        say(f"submitted; `tiepoint watch {shlex.quote(project_id)}` shows how it goes")


def watch(
    project: ProjectName, broker: BrokerOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Show the progress of a project on a cluster, to its end."""
    with plain_errors(), cluster(broker, store) as client:
        client.project(project)
        ending = _watched(client, project)
    show_ending(ending, as_json=as_json)


def _watched(client: Client, project_id: str) -> Ending:
    with interruptible(f"`tiepoint watch {shlex.quote(project_id)}` shows it again; the project goes on"):
        return watch_to_the_end(client, project_id, errors)


def cancel(
    project: ProjectName, broker: BrokerOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Stop a project on a cluster; what it has finished stays, and `resume` goes on from there."""
    with plain_errors(), interruptible("cancel again to be sure"), cluster(broker, store) as client:
        done = client.cancel(project)
    if as_json:
        found = {"project": project, "removed": done.removed, "still_running": done.still_running}
        typer.echo(json.dumps(found))
        return
    say(f"cancelled; waiting jobs removed: {done.removed}; `tiepoint resume {shlex.quote(project)}` goes on")
    if done.still_running:
        say(f"held by nodes that do not answer: {done.still_running}; what comes of it changes nothing")


def retry(
    project: JobOrProject, broker: BrokerOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Try failed items of a project on a cluster again, or one failed job of any sender."""
    with plain_errors(), cluster(broker, store) as client:
        project_id = client.retry(project)
    if project_id is not None:
        show_started_again(project_id, as_json=as_json)
    elif as_json:
        typer.echo(json.dumps({"job": project}))
    else:
        say(f"waits again, as it was sent; `tiepoint explain {shlex.quote(project)}` says where")


def explain(
    project: JobOrProject, broker: BrokerOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Say where a project on a cluster, or one of its jobs, is and why."""
    with plain_errors(), cluster(broker, store) as client:
        explanation = client.explain(project)
    if as_json:
        typer.echo(json.dumps(explanation.to_dict()))
    else:
        typer.echo(f"{explanation.subject}: {explanation.state}")
        for sentence in explanation.sentences:
            typer.echo(f"  {sentence}")
