# The commands of this project; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := perf,staging,mpich,tensorflow-cpu
PIP := $(BIN)/python -m pip --disable-pip-version-check
export PATH := $(PATH):/usr/sbin:/sbin

.DEFAULT_GOAL := help
.PHONY: help demo test test-long lint types layers unit cluster-tests clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

demo: $(VENV)/.runtime  ## Train, be preempted, resume and learn on a private Slurm
	$(BIN)/python jobs/examples/demo.py --folder demo-run --cluster .sbtrain/cluster

test: $(VENV)/.dev lint types layers  ## Everything a change must pass
	$(BIN)/python -m pytest -m "not slow"

test-long: $(VENV)/.dev  ## The slow tests: fuzzing, thousands of kills, accounting
	.ci/prepare-system accounting machine-room
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

bench-%: $(VENV)/.dev  ## One benchmark of benchmarks/, e.g. make bench-startup
	@mkdir -p build
	$(BIN)/python benchmarks/$*.py

clean:  ## Stop the private Slurm and remove what the commands above made
	@if [ -x $(BIN)/sbtrainctl ]; then $(BIN)/sbtrainctl cluster down --folder .sbtrain/cluster; fi
	rm -rf $(VENV) .sbtrain demo-run build

$(VENV)/.runtime: setup.py pyproject.toml .ci/prepare-system .ci/constraints.txt
	@PYTHON=$(PYTHON) .ci/prepare-system
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing sbtrain and what it needs into $(VENV) (about a minute) ..."
	$(PIP) install -q -c .ci/constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(PIP) install -q -c .ci/constraints.txt -e '.[$(EXTRAS),dev]'
	@touch $@
