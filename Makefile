# Every target sets up what it needs; a fresh clone needs Python 3.11+ only.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help dev java check lint types layers test demo bench-capture clean

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

dev: $(STAMP) java  ## virtual environment with everything, Java included

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "vedur needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1): set PYTHON=..." >&2; exit 1; }
	@echo "setting up $(VENV) (the first time this takes a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

java:
	@tools/ensure-java

check: lint types layers  ## ruff, mypy, import layers

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)
	@$(BIN)/mypy

layers: $(STAMP)
	@$(BIN)/lint-imports --no-cache

test: dev check  ## all checks and all tests, on every server version at hand
	@$(BIN)/pytest -q -n 2 --dist loadfile

demo: dev  ## see it work on embedded servers
	@$(BIN)/python -m vedur.demo

bench-capture: dev  ## cost of capture: none, ours, upstream's C trigger
	@$(BIN)/python -m bench.capture

clean:  ## remove the virtual environment and caches
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
