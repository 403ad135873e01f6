# `make train` and `make test` do all the set-up themselves. Everything goes into
# .venv, where stamp files remember what is installed: a second run starts at once.

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=

bin := $(VENV)/bin
pip := $(bin)/python -m pip --disable-pip-version-check install --quiet

# The extra this machine needs, worked out once and only where a target asks for it.
# The driver itself is asked: a container may have it without nvidia-smi. A CUDA extra
# once installed stays, since two CuPy wheels in one environment break each other.
probe := import ctypes as c; v = c.c_int(); cuda = c.CDLL("libcuda.so.1"); \
  cuda.cuInit(0) == 0 and cuda.cuDriverGetVersion(c.byref(v)); \
  print(f"cuda{min(v.value // 1000, 13)}" if v.value >= 12000 else "cpu")
installed = $(patsubst $(VENV)/installed-%,%,$(wildcard $(VENV)/installed-cuda*))
detected  = $(shell $(PYTHON) -c '$(probe)' 2>/dev/null || echo cpu)
EXTRA     = $(eval EXTRA := $(or $(installed),$(detected)))$(EXTRA)

.PHONY: help train test lint gpu-test gpu-bench gpu-found bench clean
.NOTPARALLEL:
.SECONDEXPANSION:

help:
	@echo 'make train     install what this machine needs, train on the digits'
	@echo 'make test      install the tools, lint, type-check, run all tests'
	@echo 'make lint      the first half of that'
	@echo 'make gpu-test  run the tests that need an NVIDIA GPU; fail without one'
	@echo 'make gpu-bench measure on an NVIDIA GPU; fail without one'
	@echo 'make bench     measure against other libraries (a large download)'
	@echo 'make clean     remove everything made here but your runs'
	@echo 'ARGS="..." goes to the program that is run, as in'
	@echo '    make train ARGS="--epochs 5 --device cpu"'
	@echo 'PYTHON=, VENV= and EXTRA=cpu|cuda12|cuda13 override what is found.'

train: $$(VENV)/installed-$$(EXTRA)
	@$(bin)/eagergrad train $(ARGS)

test: lint
	@$(bin)/pytest $(ARGS)

lint: $(VENV)/group-dev
	@$(bin)/ruff check .
	@$(bin)/ruff format --check .
	@$(bin)/mypy

gpu-bench: gpu-found $$(VENV)/installed-$$(EXTRA)
	@$(bin)/python bench/gpu.py --save $(ARGS)
	@$(bin)/python bench/steps.py --device cuda --cases Adam --save

gpu-test: gpu-found $$(VENV)/installed-$$(EXTRA) $(VENV)/group-dev
	@$(bin)/pytest -m gpu $(ARGS)

gpu-found:
	@test $(detected) != cpu || { echo >&2 'no NVIDIA GPU:' \
	  'libcuda.so.1 is missing, older than CUDA 12, or finds no device'; exit 1; }

bench: $(VENV)/group-bench
	@set -e; for script in $(wildcard bench/overhead.py bench/steps.py); do \
	  $(bin)/python $$script $(ARGS); done

clean:
	rm -rf $(VENV) build dist .benchmarks .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# bin/pip is what a venv gets last: where that failed, the next run tries again.
$(bin)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "eagergrad needs Python 3.11 or newer; $(PYTHON) is %d.%d.%d: try make PYTHON=python3.12" \
	  % sys.version_info[:3])'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/installed-%: pyproject.toml | $(bin)/pip
	@echo 'installing eagergrad[$*,plot] into $(VENV)'
	@$(pip) --editable '.[$*,plot]'
	@touch $@

# pip reads dependency groups from 25.1 on; Python 3.11 and 3.12 bring older ones.
$(VENV)/group-%: pyproject.toml | $(bin)/pip
	@echo 'installing eagergrad and its $* tools into $(VENV)'
	@$(pip) --upgrade 'pip>=25.1'
	@$(pip) --editable '.[bf16,plot,scipy]' --group $*
	@touch $@
