# Every target sets up what it needs; a fresh clone needs Python 3.11+ only.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

# Where this is set, every command that a test runs would compile all that it imports, and every
# process of a run all tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help dev java oracles check lint types layers test test-long demo docs bench peers torture torture-load model clean

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

dev: $(STAMP) java  ## virtual environment with everything, Java included

# Python compiles what is used when it is used; of what is installed that is a quarter.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "vedur needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1): set PYTHON=..." >&2; exit 1; }
	@echo "setting up $(VENV) (the first time this takes a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	@touch $@

java: $(STAMP)  ## Java 17+ through apt where possible, and the archive of Spark's classes
	@tools/ensure-java
	@$(BIN)/vedur prepare --quiet || true

check: lint types layers  ## ruff, mypy, import layers

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)
	@$(BIN)/mypy

layers: $(STAMP)
	@$(BIN)/lint-imports --no-cache

oracles:  ## what tests compare with (upstream's packages, a browser, a shell, spin), through apt where possible
	@tools/ensure-oracles

# Each run draws its own order and examples; its last lines name the seed, and SEED= has them again.
SEED ?= $(shell $(PYTHON) -c 'import random; print(random.randrange(2**32))')
seeded = seed=$(SEED); $(BIN)/pytest --randomly-seed=$$seed --hypothesis-seed=$$seed

# The checks need one core for half a minute: they run beside the rest, and are shown after it.
checks = $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-cache

# In a new clone nothing is compiled, and every process that runs tests would compile all of them.
compiled = test -e build/collect.log || $(BIN)/pytest -q --collect-only > build/collect.log 2>&1

# Tests wait for servers, ticks and each other half of the time: more processes than cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(12, 2 * os.cpu_count() + 1))')

# Of tests of one kind a run draws some; DRAW=2 draws twice as many. An archive of Spark's classes is
# used where there is one: writing it here would cost more than the few starts of Java save.
test: export VEDUR_DRAW = $(DRAW)
test: $(STAMP) oracles  ## all checks and all tests but the long ones, spread over the server versions at hand; SEED= WORKERS= DRAW=
	@mkdir -p build; tools/ensure-java || exit; ($(checks)) > build/check.log 2>&1 & check=$$!; \
	  $(compiled); $(seeded) -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 25 -m "not long"; tested=$$?; \
	  wait $$check; checked=$$?; cat build/check.log; exit $$((tested | checked))

test-long: dev oracles  ## the walk-through, Spark elsewhere, the how-to pages: minutes each; SEED=
	@export VEDUR_EXAMPLES=thorough; $(seeded) -q -m "long or hypothesis"

demo: dev  ## see it work on embedded servers; ARGS=--keep leaves it running
	@$(BIN)/vedur demo $(ARGS)

docs: $(STAMP)  ## the manual as HTML in build/site; its generated pages first
	@$(BIN)/python -m vedur.cli.manual
	@$(BIN)/mkdocs build --strict --clean

peers:  ## the programs that bench compares with, through apt where possible
	@tools/ensure-peers

bench: dev peers  ## measure beside native, Londiste and others; PART= one of capture apply copy latency cascade takeover compare scale handlers footprint
	@$(BIN)/python -m bench $(PART) $(ARGS)

torture: dev  ## faults under load: MINUTES=5, SEED=, ONLY=, ARGS="--lab cascade --plain", or merge
	@$(BIN)/python -m tests.torture --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED)) \
	  $(if $(ONLY),--only "$(ONLY)") $(ARGS); code=$$?; $(BIN)/python -m tests.torture.report; exit $$code

torture-load: dev  ## as much load as is sustained for MINUTES=30, RATE= to set it: lag, memory, sizes
	@$(BIN)/python -m tests.torture.soak --minutes $(or $(MINUTES),30) $(if $(RATE),--rate $(RATE)) \
	  && $(BIN)/python -m tests.torture.report

model: $(STAMP)  ## check the model of takeover with spin, exhaustively, and that planted mistakes are found; ONLY=
	@tools/ensure-spin
	@$(BIN)/python -m model $(if $(ONLY),--only "$(ONLY)") $(ARGS)

clean:  ## remove the virtual environment and caches
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
