# The book and its package. `make` alone lists the targets.
SHELL := bash
PYTHON ?= python3
PY := .venv/bin/python
PARTS := $(PY) .ci/parts.py
ASKED := $(filter command,$(firstword $(origin PYTHON)))

help:
	@sed -n 's/^## //p' Makefile

## reproduce       run every chapter, build the book, print the tables (makes .venv first)
reproduce: env
	$(PY) -m cmlib.cli chapters --profile digits
	@$(PARTS) build
	$(PY) -m cmlib.cli report
	@echo "The book lies in _build/html/index.html, the executed chapters in _build/executed."

## test            all of the parts below, with the time of each at the end (makes .venv first)
test: env
	@$(PARTS) lint units notebooks book engines numbers faults glance

## test-units      quick tests of the package and the set-up
## test-notebooks  run every chapter
## test-book       build the book from nothing, warnings are errors, and check the site
## test-engines    compare the engines
## test-numbers    compare losses and steps as other CPUs compute them
## test-faults     kill and resume, bad input
## test-browser    look at every page of the built site in Chromium, in every form (`make test` looks once)
## test-cpus       units and engines under other instruction sets and two threads (half an hour; not in `make test`)
TESTS := test-units test-notebooks test-book test-engines test-numbers test-faults test-browser test-cpus
$(TESTS): env
	@$(PARTS) $(@:test-%=%)

## stress          longer forms: slow tests, planted defects, 20,000 damaged files, speed against a bare loop
stress: env
	@$(PARTS) stress

## lint            ruff, mypy, layers of imports, metadata of the notebooks
lint: env
	@$(PARTS) lint

## notebooks       run every chapter in place and store its outputs
notebooks: env
	$(PY) -m cmlib.teaching.notebooks refresh

## book            build the site into _build/html
book: env
	@$(PARTS) build

## publish-results validate the runs in ./runs, copy them to book/results, fill the pages' tables anew
publish-results: env
	$(PY) -m cmlib.cli publish
	$(PY) -m cmlib.cli tables
	$(PY) -m cmlib.teaching.hero

## repo            SLUG=owner/name: change the public address everywhere
repo:
	@$(PYTHON) .ci/repo.py '$(SLUG)'

## clean           remove what was built; .venv and runs stay
clean:
	rm -rf _build build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache

## Another Python: make test PYTHON=python3.12
VENV = MAKE_GOAL='$(firstword $(MAKECMDGOALS))' bash .ci/venv.sh
env:
	$(eval wrong := $(shell $(VENV) check '$(PYTHON)' $(ASKED)))$(if $(wrong),$(error $(wrong)))
	@$(VENV) fill '$(PYTHON)' $(ASKED)

.PHONY: help reproduce test $(TESTS) stress lint notebooks book publish-results repo clean env
