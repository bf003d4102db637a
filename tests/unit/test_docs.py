"""Tests that the pages under docs/ still say what the code does (docs/governor.md has its own)."""

import ast
import json
import re
from functools import cache
from inspect import signature
from itertools import takewhile
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from governor.model import Estimate
from tasks.catalog import load_kinds
from tasks.old_estimates import OLD_ESTIMATES
from tasks.parameters import Parameters, ProjectParameters
from worker import cli, command_endings, keys
from worker.redis_scripts import Script, source
from worker.settings import PREFIX as SETTING_PREFIX
from worker.settings import Settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ADRS = sorted(path for path in (DOCS / "adr").glob("*.md") if path.name != "README.md")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md")), *sorted((DOCS / "adr").glob("*.md"))]
PACKAGES = ("governor", "tasks", "worker")
ADR_HEADINGS = ["Status", "Context", "Decision", "Consequences", "Rejected"]
KINDS = load_kinds()
GROUPS = {type(getattr(ProjectParameters(), name)).__name__: name for name in ProjectParameters.model_fields}
_CODE_PLACE = r"`((?:governor|tasks|worker|tests)/[\w/]+\.(?:py|lua))(?::([\w.]+))?`"


def section(page: str, heading: str) -> str:
    """Return the text below a heading of a page in docs/, up to the next of the same rank or a higher one."""
    lines = iter((DOCS / page).read_text(encoding="utf-8").splitlines())
    rank = len(heading.partition(" ")[0])
    if heading not in lines:  # consumes the lines up to the heading
        pytest.fail(f"{page} has no heading {heading!r}")
    higher = re.compile(rf"#{{1,{rank}}} ")
    return "\n".join(takewhile(lambda line: not higher.match(line), lines))


def rows(text: str) -> list[list[str]]:
    """Return the cells of all table rows of a text whose first cell is code."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| `")
    ]


def code(cell: str) -> list[str]:
    """Return what stands in backticks in a cell."""
    return re.findall(r"`([^`]+)`", cell)


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the functions, classes and methods (as Class.method) that a file defines."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".lua"):
        return frozenset(re.findall(r"^local function (\w+)", text, re.MULTILINE))
    return frozenset(_python_names(ast.parse(text).body, ""))


def _python_names(body: list[ast.stmt], prefix: str) -> list[str]:
    names = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(prefix + node.name)
        if isinstance(node, ast.ClassDef):
            names += _python_names(node.body, f"{node.name}.")
    return names


def unknown_places(text: str) -> list[str]:
    """Return the `file` and `file:name` places of a text that the code does not have."""
    return [
        f"{path}:{name}"
        for path, name in re.findall(_CODE_PLACE, text)
        if not (ROOT / path).is_file() or (name and name not in names_in(path))
    ]


# -- The pages as such -------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_heading(page: Path) -> None:
    """Nobody follows a link into nothing."""
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8"))
    targets = [
        ((page.parent / path) if path else page, anchor) for path, anchor in links if "://" not in path
    ]

    assert [str(target) for target, anchor in targets if not _resolves(target, anchor)] == []


def _resolves(target: Path, anchor: str) -> bool:
    if not target.exists() or not anchor:
        return target.exists()
    headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
    return anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_place_in_the_code_that_a_page_names_exists(page: Path) -> None:
    """A renamed file or function takes the pages along."""
    assert unknown_places(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("place", "is_known"),
    [
        ("`worker/puller.py`", True),
        ("`worker/intake.py:Intake.take`", True),
        ("`worker/candidates.py:in_order`", True),
        ("`worker/scripts/settle.lua:give_back`", True),
        ("`worker/pullers.py`", False),
        ("`worker/puller.py:Puller.no_such_method`", False),
        ("`worker/candidates.py:WaitingTimes.in_order`", False),
        ("`worker/scripts/settle.lua:no_such_function`", False),
    ],
)
def test_a_place_that_the_code_does_not_have_is_noticed(place: str, is_known: bool) -> None:  # noqa: FBT001 - a table
    """The check above can fail."""
    assert (unknown_places(place) == []) is is_known


# -- docs/architecture.md ----------------------------------------------------------------


def test_the_life_of_one_job_has_nine_steps() -> None:
    """Numbered from 1 to 9."""
    steps = re.findall(r"^(\d+)\. \*\*", section("architecture.md", "## Life of one job"), re.MULTILINE)

    assert steps == [str(number) for number in range(1, 10)]


@pytest.mark.parametrize("number", range(1, 10))
def test_each_step_names_functions_keys_and_state(number: int) -> None:
    """Each step says where it happens, what it touches in Redis and where the job is then."""
    life = section("architecture.md", "## Life of one job")
    step = re.split(r"^\d\. ", life, flags=re.MULTILINE)[number]

    assert [name for _, name in re.findall(_CODE_PLACE, step) if name]
    assert "Keys: " in step
    assert "State: " in step


def test_every_state_of_the_chart_is_explained() -> None:
    """Chart and table show the same states."""
    text = section("architecture.md", "## States of a job")
    drawn = set(re.findall(r"^ +(?:\[\*\] --> )?(\w+)(?: -->|:)", text, re.MULTILINE))
    table = text.split("| state | where it is |")[1]
    explained = {name.strip() for line in table.splitlines()[2:] for name in line.split("|")[1:2]}

    assert {word.replace("_", " ") for word in drawn} == {
        state for states in explained for state in states.split(", ")
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_the_code_map_names_exactly_the_files_there_are(package: str) -> None:
    """A new file needs its line, a deleted one loses it."""
    listed = [code(row[0])[0] for row in rows(section("architecture.md", f"### `{package}/`"))]
    folder = ROOT / package
    files = [path for suffix in ("py", "lua") for path in folder.rglob(f"*.{suffix}")]

    assert sorted(listed) == sorted(
        path.relative_to(folder).as_posix() for path in files if path.name != "__init__.py"
    )


# -- docs/redis-keys.md ------------------------------------------------------------------


def _keys_of_the_code() -> set[str]:
    """Return every key: the constants, and what the functions return for their argument names in <>."""
    functions = [value for value in vars(keys).values() if isinstance(value, FunctionType)]
    made = [f(*(f"<{name}>" for name in signature(f).parameters)) for f in functions if _makes_a_key(f)]
    constants = [value for value in vars(keys).values() if isinstance(value, str)]
    complete = [text for text in constants if text != keys.PREFIX and not text.endswith(":")]
    return {text for text in (*made, *complete) if text.startswith(keys.PREFIX)}


def _makes_a_key(function: FunctionType) -> bool:
    return function.__annotations__["return"] is str and all(
        parameter.annotation is str for parameter in signature(function).parameters.values()
    )


def test_the_key_table_names_exactly_the_keys_there_are() -> None:
    """Each key once, with the names that the code gives its parts."""
    listed = [code(row[0])[0] for row in rows(section("redis-keys.md", "## Keys"))]

    assert sorted(listed) == sorted(_keys_of_the_code())


def test_every_key_prefix_of_the_code_is_in_the_key_table() -> None:
    """A prefix without a function, and so without a row, is noticed."""
    prefixes = {value for name, value in vars(keys).items() if name.endswith("_PREFIX")}
    listed = {code(row[0])[0] for row in rows(section("redis-keys.md", "## Keys"))}

    assert prefixes
    assert {prefix for prefix in prefixes if not any(key.startswith(prefix) for key in listed)} == set()


def test_the_script_table_names_exactly_the_scripts_there_are() -> None:
    """Each script once."""
    listed = [code(row[0])[0] for row in rows(section("redis-keys.md", "## Scripts"))]

    assert sorted(listed) == sorted(Script)


def test_the_fields_of_a_project_are_those_that_are_written() -> None:
    """Every documented field occurs in a script or in what planning and the client set."""
    written = "\n".join(
        [
            *(source(script) for script in Script),
            *(
                (ROOT / path).read_text(encoding="utf-8")
                for path in (
                    "worker/project_queue.py",
                    "tasks/expand.py",
                    "tasks/outlook.py",
                    "tasks/verification.py",
                )
            ),
        ]
    )
    fields = [
        name
        for row in rows(section("redis-keys.md", "## Fields of a project's hash"))
        for name in code(row[0])
    ]
    quoted = [re.sub(r"^(<stage>|kind:<kind>):", "", name) for name in fields]

    assert [name for name in quoted if not re.search(rf"['\":]{name}\b|\b{name} = true", written)] == []


# -- docs/settings.md --------------------------------------------------------------------


def _default_of_setting(name: str) -> str:
    field = Settings.model_fields[name]
    if field.default_factory is not None:
        return "host name"
    if field.default is None:
        return "not set"
    dumped = Settings(broker_url="redis://127.0.0.1:6379/0").to_environment()
    return f"`{dumped.get(SETTING_PREFIX + name.upper(), field.default)}`"


def test_the_settings_table_holds_every_setting_with_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """One variable per field, no more."""
    for name in Settings.model_fields:
        monkeypatch.delenv(SETTING_PREFIX + name.upper(), raising=False)
    listed = [(code(row[0])[0], row[1]) for row in rows((DOCS / "settings.md").read_text(encoding="utf-8"))]

    assert listed == [
        (SETTING_PREFIX + name.upper(), _default_of_setting(name)) for name in Settings.model_fields
    ]


# -- docs/cli.md -------------------------------------------------------------------------


def _commands() -> dict[str, Any]:
    """Return typer's commands by name; its own copy of click is not click to a type checker."""
    group: Any = typer.main.get_command(cli.app)
    return dict(group.commands)


def _documented_commands() -> dict[str, str]:
    """Return the heading of each documented command."""
    headings = re.findall(r"^### `tiepoint .*`$", (DOCS / "cli.md").read_text(encoding="utf-8"), re.MULTILINE)
    return {heading.split()[2].rstrip("`"): heading for heading in headings}


def _default_of_option(option: Any) -> str:
    default = option.default
    if option.required:
        return "required"
    if default is None:
        return "none"
    return "off" if default is False else f"`{getattr(default, 'value', default)}`"


def test_exactly_the_commands_there_are_are_documented() -> None:
    """A new command needs its table."""
    assert sorted(_documented_commands()) == sorted(_commands())


@pytest.mark.parametrize("name", sorted(_commands()))
def test_a_commands_table_holds_its_options_with_their_defaults(name: str) -> None:
    """In the order of --help."""
    listed = [(code(row[0])[0], row[1]) for row in rows(section("cli.md", _documented_commands()[name]))]
    options = [option for option in _commands()[name].params if option.param_type_name == "option"]

    assert listed == [
        (option.opts[0], _default_of_option(option)) for option in options if option.name != "help"
    ]


@pytest.mark.parametrize("name", sorted(_commands()))
def test_a_commands_heading_names_its_arguments(name: str) -> None:
    """As they are called in --help."""
    arguments = [p.name or "" for p in _commands()[name].params if p.param_type_name == "argument"]
    heading = " ".join(["tiepoint", name, *(argument.upper() for argument in arguments)])

    assert _documented_commands()[name] == f"### `{heading}`"


def test_every_exit_code_is_documented() -> None:
    """0 and the constants of the command line."""
    listed = re.findall(r"^\| (\d+) \|", section("cli.md", "## Exit codes"), re.MULTILINE)
    codes = [value for name, value in vars(command_endings).items() if name.startswith("EXIT_")]

    assert [int(number) for number in listed] == sorted({0, *codes})


# -- docs/payloads.md --------------------------------------------------------------------


def _default_of_field(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if isinstance(field.default, BaseModel):
        return "all defaults"
    return f"`{json.dumps(field.default)}`"


def _documented_fields(heading: str) -> list[tuple[str, str]]:
    return [(code(row[0])[0], row[1]) for row in rows(section("payloads.md", heading))]


def _fields_of(model: type[BaseModel]) -> list[tuple[str, str]]:
    return [(name, _default_of_field(field)) for name, field in model.model_fields.items()]


def _heading_of_kind(name: str) -> str:
    text = (DOCS / "payloads.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### .*$", text, re.MULTILINE)
    return next((heading for heading in headings if name in code(heading)), f"### `{name}`")


@pytest.mark.parametrize("name", KINDS)
def test_a_kinds_arguments_are_documented_with_their_defaults(name: str) -> None:
    """What a stock client may send is what the payload accepts."""
    assert _documented_fields(_heading_of_kind(name)) == _fields_of(KINDS[name].payload)


def test_no_kind_is_documented_that_there_is_not() -> None:
    """Headings name kinds and parameter groups, nothing else."""
    headings = re.findall(r"^### .*$", (DOCS / "payloads.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(name for heading in headings for name in code(heading)) == sorted([*KINDS, *GROUPS])


@pytest.mark.parametrize("group", GROUPS)
def test_a_parameter_group_is_documented_with_its_defaults(group: str) -> None:
    """Every parameter of a project."""
    model = type(getattr(ProjectParameters(), GROUPS[group]))

    assert issubclass(model, Parameters)
    assert _documented_fields(f"### `{group}`") == _fields_of(model)


@pytest.mark.parametrize("name", KINDS)
def test_a_kinds_row_states_its_default_estimate(name: str) -> None:
    """What a message without the header is charged."""
    listed = {code(row[0])[0]: row[1:] for row in rows(section("payloads.md", "## Kinds"))}

    assert listed[name] == [KINDS[name].stage, *_estimate_cells(KINDS[name].estimate)]
    assert list(listed) == list(KINDS)


def test_the_table_of_old_estimates_is_the_codes() -> None:
    """Whoever has such jobs finds them there."""
    listed = [(code(row[0])[0], row[1:]) for row in rows(section("payloads.md", "## Estimates in messages"))]

    assert listed == [(name, _estimate_cells(old)) for name, forms in OLD_ESTIMATES.items() for old in forms]


def _estimate_cells(estimate: Estimate) -> list[str]:
    return [
        _in_words(estimate.memory_fixed_bytes),
        _in_words(estimate.memory_per_item_bytes),
        f"{estimate.min_batch}..{estimate.max_batch}",
        str(estimate.cpu_threads),
        str(estimate.io_slots),
        _gpu_in_words(estimate),
    ]


def _gpu_in_words(estimate: Estimate) -> str:
    if not estimate.gpu_slots:
        return "no"
    return f"{estimate.gpu_slots} slot, {_in_words(estimate.gpu_memory_fixed_bytes)}"


def _in_words(amount_bytes: int) -> str:
    for unit, size_bytes in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if amount_bytes and amount_bytes % size_bytes == 0:
            return f"{amount_bytes // size_bytes} {unit}"
    return f"{amount_bytes} B"


# -- docs/failures.md, docs/adr ----------------------------------------------------------


def test_every_handled_failure_names_the_test_that_shows_it() -> None:
    """A row without a test is a promise."""
    table = section("failures.md", "## Handled today").splitlines()
    lines = [line for line in table if line.startswith("| ") and not line.startswith("| what happens")]

    assert lines
    assert [line for line in lines if not re.search(r"\| `tests/[^|]+:test_\w+` \|$", line)] == []


def test_the_index_of_decisions_lists_each_page_with_its_title() -> None:
    """In order, none left out, numbers without gaps."""
    index = (DOCS / "adr" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\d{4})\]\((.*)\) \| (.*) \|$", index, re.MULTILINE)
    titles = [path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for path in ADRS]

    assert [name for _, name, _ in listed] == [path.name for path in ADRS]
    assert [f"{number} {title}" for number, _, title in listed] == titles
    assert [int(number) for number, _, _ in listed] == list(range(1, len(ADRS) + 1))


@pytest.mark.parametrize("page", ADRS, ids=lambda path: path.stem)
def test_a_decision_has_its_five_parts(page: Path) -> None:
    """Status, context, decision, consequences, rejected; none of them empty."""
    text = page.read_text(encoding="utf-8")
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]

    assert [part.splitlines()[0] for part in parts] == ADR_HEADINGS
    assert all(part.partition("\n")[2].strip() for part in parts)
