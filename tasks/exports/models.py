"""Reads the models that a project's exports are made from."""

from pathlib import Path

from tasks.errors import CorruptArtefactError, MissingArtefactError, ProjectError
from tasks.model_report import ModelReport, read_report
from tasks.reconstruction import model_folder
from tasks.store import Project, Store


def models_of(store: Store, project: Project) -> tuple[ModelReport, list[Path]]:
    """Return the report and one folder of binary files per model, best first (perhaps none).

    Raises:
        ProjectError: the project does not exist, is not finished, or its models are damaged.
    """
    if not project.exists():
        raise ProjectError(f"there is no project {project.id} in {store.root}")
    try:
        folder = model_folder(store, project)
    except MissingArtefactError as error:
        raise ProjectError(f"project {project.id} has no model yet; let it run to its end first") from error
    except CorruptArtefactError as error:
        raise ProjectError(f"the model of project {project.id} is damaged; resume the project") from error
    report = read_report(folder)
    return report, [folder / str(number) for number in range(len(report.models))]
