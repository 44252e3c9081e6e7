# Everything a clone needs. `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.NOTPARALLEL:
.DEFAULT_GOAL := help

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := $(PY) -m pip --disable-pip-version-check
READY := $(VENV)/.ready

# By import: where a reused environment has the linter already, .venv has no script for it.
LINT_IMPORTS = from importlinter.cli import lint_imports_command as run; run()

# Where the torch that an interpreter imports lies: "own" (inside .venv), "reused", or "none".
TORCH_ORIGIN = import sys, torch; print("own" if torch.__file__.startswith(sys.prefix) else "reused")
# The folder on sys.path that holds it.
TORCH_FOLDER = import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))

.PHONY: help setup run test faults lint bench score screenshots clean

help: ## list the targets
	@echo "make TARGET [PYTHON=python3.12] [ARGS=...]"
	sed -n 's/^\([a-z]*\):[^#]*## /  \1\t/p' Makefile | expand -t 16

setup: $(READY) ## build .venv with all extras; a torch that PYTHON has already is reused

run: $(READY) ## start torchtop; ARGS="run resnet50-cifar10" starts a workload at once
	@exec $(BIN)/torchtop $(ARGS)

test: $(READY) ## run the tests; ARGS="-k doctor" picks some
	@$(PY) -m pytest $(ARGS)

faults: $(READY) ## break things in every known way; prints what is right and whether it came so
	@$(PY) -m pytest -m fault $(ARGS)

lint: $(READY) ## ruff, mypy --strict, and the import contracts
	@$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -c '$(LINT_IMPORTS)'

bench: $(READY) ## measure what torchtop itself costs; ARGS="soak --minutes 30" watches a long run
	@exec $(PY) tests/bench/run.py $(ARGS)

score: $(READY) ## run faults with a known answer and score the verdicts; ARGS="--help" tells how
	@exec $(PY) tests/score/run.py $(ARGS)

screenshots: $(READY) ## draw screenshots/ again from the recorded sessions
	@exec $(PY) screenshots/make.py $(ARGS)

clean: ## remove .venv, caches and build products
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -path ./.git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

# The environment is built again when pyproject.toml changes; what is installed already stays. pip
# runs with -qq, which leaves only its errors: some set-ups make it warn on every line.
$(READY): pyproject.toml
	@fail() { printf 'torchtop: %s\n' "$$*" >&2; exit 1; }
	[ "$$(uname -s)" = Linux ] || fail "Linux only, and this is $$(uname -s)"
	command -v $(PYTHON) >/dev/null \
	  || fail "there is no $(PYTHON); name a Python 3.10 or later: make setup PYTHON=/path/to/python3"
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail "Python 3.10 or later is" \
	  "needed, and $(PYTHON) is $$($(PYTHON) -V 2>&1); name another: make setup PYTHON=python3.12"
	# torch is reused from wherever PYTHON finds it. A venv built from another venv sees only the
	# packages of the base interpreter, so the folder is then named in a .pth file.
	reuse=$$($(PYTHON) -c '$(TORCH_FOLDER)' 2>/dev/null || true)
	if ! $(PIP) --version >/dev/null 2>&1; then
	  $(PYTHON) -m venv --clear $${reuse:+--system-site-packages} $(VENV) \
	    || fail "$(PYTHON) cannot make a virtual environment; on Debian or Ubuntu: apt install python3-venv"
	fi
	origin=$$($(PY) -c '$(TORCH_ORIGIN)' 2>/dev/null || echo none)
	if [ $$origin = none ] && [ -n "$$reuse" ]; then
	  echo "$$reuse" > "$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/reused.pth"
	  origin=$$($(PY) -c '$(TORCH_ORIGIN)' 2>/dev/null || echo none)
	fi
	$(PIP) install -qq 'pip>=21.3' || fail "pip could not be brought up to date (see above)"
	if [ $$origin = reused ]; then
	  torch=$$($(PY) -c 'from importlib.metadata import version as v; print(v("torch"))' 2>/dev/null || true)
	  echo "Setting up $(VENV) with the torch $$torch that is there already"
	  if [ -n "$$torch" ]; then  # what is tested beside it must not bring another
	    echo "torch==$$torch" > $(VENV)/torch.txt
	    $(PIP) install -qq -c $(VENV)/torch.txt -e '.[dev]' || fail "pip could not install the packages (see above)"
	  else
	    echo "torchtop: pip does not know of this torch; the tests of other libraries will skip" >&2
	    $(PIP) install -qq -e '.[test]' || fail "pip could not install the packages (see above)"
	  fi
	  $(PY) -c 'import torchvision' 2>/dev/null \
	    || { [ -n "$$torch" ] && $(PIP) install -qq "torch==$$torch" torchvision; } \
	    || echo "torchtop: no torchvision fits torch $$torch; the image workloads will not run" >&2
	else
	  echo "Setting up $(VENV); where torch is not there yet this takes some minutes and gigabytes"
	  $(PIP) install -qq -e '.[train,dev]' || fail "pip could not install the packages (see above)"
	fi
	touch $(READY)
