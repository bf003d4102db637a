# `make demo` and `make test` set up everything they need; `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.complete

.DEFAULT_GOAL := help
.PHONY: help venv demo test check chaos chaos-short fmt bench lock clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## create .venv with the locked dependencies and tiepoint itself

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "tiepoint needs Python 3.11 or newer: install it, or name it with 'make PYTHON=python3.12 ...'." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "Python's venv module is missing: on Debian or Ubuntu install the package python3-venv." >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: venv ## render a drone flight, reconstruct it, compare it with the truth
	$(BIN)/tiepoint demo

test: venv ## run every test
	$(BIN)/python -m pytest

chaos-short: venv ## break a cluster at random for a few minutes: nothing is lost, nothing doubled
	$(BIN)/python -m tests.acceptance.chaos

chaos: venv ## the same for an hour or two: 30 restarts, 10,000 jobs, projects under many seeds
	$(BIN)/python -m tests.acceptance.chaos --rounds 30 --jobs 30
	$(BIN)/python -m tests.acceptance.chaos --photos "" --jobs 10000 --longest-job 0.2 --seconds 900 --quiet-seconds 3600
	$(BIN)/python -m tests.acceptance.chaos --runs 10 --seconds 180 --jobs 600
	$(BIN)/python -m tests.acceptance.chaos --stock --jobs 600 --seconds 180 --longest-job 2

check: venv ## lint, format, types, imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: venv ## format the code and fix what lint can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv ## measure beside COLMAP alone, stock Celery, and the plain stages; memory; planning (an hour)
	$(BIN)/python -m tests.bench.colmap
	$(BIN)/python -m tests.bench.queue
	$(BIN)/python -m tests.bench.stages
	$(BIN)/python -m tests.bench.memory
	$(BIN)/python -m tests.bench.planning_tables
	$(BIN)/python -m tests.bench.planning_cost
	$(BIN)/python -m tests.bench.planning_mutations
	$(BIN)/python -m tests.bench.learned_plans
	$(BIN)/python -m tests.bench.eta

lock: venv ## lock the dependencies of pyproject.toml anew
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-header --quiet --output-file requirements.lock
	# The part of it that the image needs (Dockerfile).
	$(BIN)/uv pip compile pyproject.toml --constraints requirements.lock --universal --generate-hashes --no-header --no-annotate --quiet --output-file requirements.runtime.lock

clean: ## remove the virtual environment and all caches
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
