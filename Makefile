# The one door to this repository: `make` lists what it can do.
# Needs python3 (3.11 or newer) with venv, and make. Everything else goes into .venv.

PYTHON ?= python3
# Tests start a thousand processes; each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
# Of the tests: many wait for processes, so that four on two cores are not too many. Each collects all
# tests, which takes a quarter of a minute of CPU.
WORKERS ?= 4
BENCH ?=
AGENT ?=

VENV := .venv
BIN := $(VENV)/bin
# -P keeps the current folder off sys.path: app, tasks and api are common names.
PY := $(BIN)/python -P
PIP := $(PY) -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev agents demo check test coverage nightly test-acl test-again test-fast test-servers test-slow faults fuzz bench profile chaos fmt docs docs-build docs-serve recording screenshots lock clean

help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/runtime.stamp ## put Leadhand and what it runs on into .venv

setup-dev: $(VENV)/dev.stamp ## the same, with the tools for tests and checks

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Leadhand needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "setup: making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "on Debian: apt install python3-venv"; exit 1; }

$(VENV)/runtime.stamp: requirements.lock pyproject.toml | $(BIN)/python
	@echo "setup: installing the packages of requirements.lock, each checked against its hash"
	@$(PIP) install --no-deps --require-hashes -r requirements.lock
	@echo "setup: installing leadhand itself from this folder"
	@$(PIP) install --quiet --no-deps -e .
	@touch $@
	@echo "setup: done, the command is $(BIN)/leadhand"

$(VENV)/dev.stamp: requirements-dev.lock pyproject.toml | $(BIN)/python
	@echo "setup: installing the packages of requirements-dev.lock, each checked against its hash"
	@$(PIP) install --no-deps --require-hashes -r requirements-dev.lock
	@echo "setup: installing leadhand itself from this folder"
	@$(PIP) install --quiet --no-deps -e .
	@touch $@

$(VENV)/docs.stamp: requirements-docs.lock pyproject.toml | $(BIN)/python
	@echo "setup: installing the packages of requirements-docs.lock, each checked against its hash"
	@$(PIP) install --no-deps --require-hashes -r requirements-docs.lock
	@touch $@

$(VENV)/bench.stamp: requirements-bench.lock pyproject.toml | $(BIN)/python
	@echo "setup: installing the packages of requirements-bench.lock, each checked against its hash"
	@$(PIP) install --no-deps --require-hashes -r requirements-bench.lock
	@touch $@

agents: $(VENV)/agents.stamp ## the real claude and codex, and axe-core, for the tests, where npm is found

# Of their own set-up only Claude's is run, which puts its program in its place. Without npm, or without a registry, the tests
# that need them are skipped and say so.
$(VENV)/agents.stamp: tests/agents/package.json tests/agents/package-lock.json | $(BIN)/python
	@if command -v npm >/dev/null && command -v node >/dev/null; then \
	  echo "agents: installing what tests/agents/package-lock.json names into $(VENV)/agents"; \
	  mkdir -p $(VENV)/agents && cp tests/agents/package.json tests/agents/package-lock.json $(VENV)/agents/ \
	  && npm ci --prefix $(VENV)/agents --ignore-scripts --no-audit --no-fund --loglevel=error \
	  && node $(VENV)/agents/node_modules/@anthropic-ai/claude-code/install.cjs && touch $@ \
	  || echo "agents: npm could not install them; their tests will be skipped"; \
	else echo "agents: npm is not here; the tests that run the real claude and codex will be skipped"; fi

demo: setup ## a whole run with nothing but this folder (AGENT=claude for a real agent)
	@PATH="$(CURDIR)/$(BIN):$$PATH" AGENT="$(AGENT)" sh examples/demo.sh

CHECKS := formatted lint types contracts drift spelling sizes dependencies dead-code locks
.PHONY: $(CHECKS)

check: $(CHECKS) ## format, lint, types, import contracts, docs drift, spelling, sizes, dependencies, dead code, locks

$(CHECKS): setup-dev

formatted:
	$(BIN)/ruff format --check .

lint:
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

contracts:
	$(BIN)/lint-imports

drift:
	@if [ -f scripts/docs.py ]; then echo "$(PY) scripts/docs.py --check"; $(PY) scripts/docs.py --check; fi

spelling:
	$(BIN)/codespell

sizes:
	$(PY) scripts/sizes.py
	$(PY) scripts/house.py --check

dependencies:
	$(BIN)/deptry .

dead-code:
	$(BIN)/vulture

locks:
	$(PY) scripts/lock.py --check

TEST = -m pytest --dist worksteal -m "not slow and not faults"

test: setup-dev agents ## the tests but the slowest
	$(PY) $(TEST) -n $(WORKERS)

# Coverage doubles the cost of what it measures, so tests of whole programs run without it.
MEASURED := tests/unit tests/engine tests/integration/api tests/integration/engine tests/integration/fleet

coverage: setup-dev ## the tests that start no whole programs, with branch coverage, which must be 90 %
	$(PY) $(TEST) -n $(WORKERS) $(MEASURED) --cov --cov-report=term:skip-covered --cov-fail-under=90

# A test that fails beside others and passes alone lets a change land (test-again), but not a night pass.
nightly: ## everything, each test at its first try: coverage, slow tests, further servers, users of the ACL, fuzz, chaos
	$(MAKE) --keep-going test coverage test-slow test-servers test-acl fuzz chaos

test-acl: setup-dev ## engine and integration tests as the users of deploy/redis/users.acl
	$(PY) $(TEST) -n $(WORKERS) --acl tests/engine tests/integration

test-again: setup-dev ## the tests that failed in the last run, once more and one by one
	$(PY) -m pytest -v --tb=short --last-failed --last-failed-no-failures none -m "not slow and not faults"

test-servers: setup-dev ## the tests marked server, on each Redis server that is installed
	$(PY) -m tests.servers -q -n $(WORKERS) --dist worksteal

test-fast: setup-dev ## the tests that need no worker: unit, property and doctests
	$(PY) -m pytest -n $(WORKERS) -m "not faults and not slow" tests/unit tests/engine tests/model

test-slow: setup-dev agents ## the tests that take minutes, which `make test` leaves out
	$(PY) -m pytest -n $(WORKERS) -m slow

faults: setup-dev ## plant faults in the state machine, which the properties must catch, and break a fleet
	$(PY) -m pytest -n $(WORKERS) -m "faults and not slow" tests/model tests/chaos

FUZZ_SEED = $(or $(SEED),$(shell $(PY) -c "import secrets; print(secrets.randbelow(2**32))"))

fuzz: setup-dev ## make up EXAMPLES (60) requests of each kind (PATHS=REGEX for some) by SEED (any), with tokens that may all or little
	@seed=$(FUZZ_SEED); echo "SEED=$$seed"; $(PY) -m pytest -n $(WORKERS) --timeout 1800 tests/contract/test_description.py \
	  -k "few and (as_it_is_described or only_read)" --api-seed $$seed --api-examples $(or $(EXAMPLES),60) --api-paths "$(or $(PATHS),/)"

bench: setup $(VENV)/bench.stamp ## measure beside plain Celery, Dramatiq and a bare loop (BENCH="--rounds 1 --no-many" for a short look)
	$(PY) -m benchmarks $(BENCH)

profile: setup $(VENV)/bench.stamp ## what each layer costs per step and per submit
	$(PY) -m benchmarks.profile

CHAOS = $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) \
  $(if $(SESSIONS),--sessions $(SESSIONS)) $(if $(EVERY),--every $(EVERY)) \
  $(if $(FLEET),--workers $(FLEET)) $(if $(LEASE),--lease $(LEASE))

chaos: setup ## break a whole fleet for MINUTES (5) with SEED, then check every promise
	$(PY) -m tests.chaos $(CHAOS)

fmt: setup-dev ## format, and mend what the linter can mend
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

docs: setup-dev ## write the generated files: parts of the docs, and what users see
	$(PY) scripts/docs.py

docs-build: $(VENV)/docs.stamp ## build the documentation site into site/; a warning is an error
	$(BIN)/zensical build --clean --strict

docs-serve: $(VENV)/docs.stamp ## serve the documentation site on http://localhost:8000, rebuilt at each change
	$(BIN)/zensical serve

recording: setup-dev ## run the demo and record it as docs/recording.svg
	$(PY) scripts/recording.py

SHOTS = $(or $(DIR),build/screenshots)

screenshots: setup-dev agents ## a picture of each page of the dashboard in DIR (build/screenshots), light and dark, wide and narrow
	$(PY) -m pytest -n 2 -q tests/acceptance/dashboard/test_looks.py --screenshots $(SHOTS)

lock: ## make the lock files anew from pyproject.toml (UPGRADE=1 for the newest versions)
	$(PYTHON) -P scripts/lock.py $(if $(UPGRADE),--upgrade)

clean: ## remove .venv and everything that tools left behind
	rm -rf $(VENV) build dist site .cache .coverage .coverage.* htmlcov
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
