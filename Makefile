# The commands of this project; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := perf,staging,mpich,tensorflow-cpu
DEV_EXTRAS := $(EXTRAS),dev
INSTALLED_BY := setup.py pyproject.toml .ci/prepare-system .ci/constraints.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Most tests wait: more workers than cores.
WORKERS ?= 8
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder
export PATH := $(PATH):/usr/sbin:/sbin
export PYTHONDONTWRITEBYTECODE :=  # tests start Python some thousand times

# Suites of Debian by the Slurm that they carry; forky goes on to newer ones.
OTHER_SLURMS := 24.11 26.05
DEBIAN_OF_SLURM_24.11 := trixie
DEBIAN_OF_SLURM_26.05 := forky

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-debian13 soak lint types layers clean

help:  ## Show this list
	@grep -hE '^[a-z0-9%-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

demo: $(VENV)/.runtime  ## Train, be preempted, resume and learn on a private Slurm
	$(BIN)/python jobs/examples/demo.py --folder demo-run --cluster .sbtrain/cluster

test: $(VENV)/.dev  ## Everything a change must pass
	@$(MAKE) --no-print-directory -j2 lint types $(VENV)/.collected
	$(PYTEST) -m "not slow"

test-long: $(VENV)/.horovod  ## The slow tests: a thousand kills, whole trainings, every framework
	$(PYTEST) -m slow
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) $(addprefix test-slurm-,$(OTHER_SLURMS)); \
	else echo "Left out, since only root can: Slurm $(OTHER_SLURMS)" >&2; fi

test-slurm-%:  ## What needs Slurm on version 24.11 or 26.05, in a root folder; as root
	.ci/on-debian $(or $(DEBIAN_OF_SLURM_$*),$(error one of $(OTHER_SLURMS))) .ci/test-slurm $*

test-debian13:  ## `make test` on Debian 13, in a root folder below build/; as root
	.ci/on-debian trixie make test

soak: $(VENV)/.dev  ## The tests of `make test` TIMES times beside a busy loop on every core
	PYTEST='$(PYTEST)' .ci/soak $(TIMES)

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

bench-launch: $(VENV)/.horovod

clean:  ## Stop the private Slurm and remove what the commands above made
	@if [ -x $(BIN)/sbtrainctl ]; then $(BIN)/sbtrainctl cluster down --folder .sbtrain/cluster; fi
	rm -rf $(VENV) .sbtrain demo-run build

# $(call install,parts of prepare-system,extras). Compiling all of it would take as long again.
define install
	@PYTHON=$(PYTHON) .ci/prepare-system $(1)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing sbtrain and what it needs into $(VENV) (about a minute) ..."
	$(PIP) install -q --no-compile -c .ci/constraints.txt -e '.[$(2)]'
	@touch $@
endef

$(VENV)/.runtime: $(INSTALLED_BY)
	$(call install,,$(EXTRAS))

# pytest rewrites every test file once, and Python compiles what it imports; eight workers that
# begin together would each do so.
$(VENV)/.collected: $(VENV)/.dev $(shell find tests -name '*.py')
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || true  # the run itself says why
	@$(BIN)/python -c 'import keras' 2>/dev/null || true
	@touch $@

$(VENV)/.dev: $(INSTALLED_BY)
	$(call install,tests,$(DEV_EXTRAS))
	@touch $(VENV)/.runtime

$(VENV)/.long: $(VENV)/.dev
	$(call install,accounting,frameworks)

$(VENV)/.horovod: $(VENV)/.long .ci/build-horovod
	@.ci/build-horovod $(BIN)/python
	@touch $@
