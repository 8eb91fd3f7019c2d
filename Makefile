# Each target makes .venv by itself when it is missing or older than what it is made from.
PYTHON ?= python3
TORCH ?= torch==2.13.0
EXTRAS ?= train,eval,cluster,dev
SCALE ?=
SOURCES ?=

BIN := .venv/bin
COMMA := ,
STAMP := .venv/.installed-$(subst $(COMMA),-,$(EXTRAS))
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
OVERRIDES := $(if $(SCALE),scale=$(SCALE)) $(if $(SOURCES),sources=$(SOURCES))

.PHONY: repro test lint check clean
.DEFAULT_GOAL := repro

repro: $(STAMP)  ## rebuild every artifact that is missing or out of date
	$(if $(strip $(OVERRIDES)),python -m stages.compose $(OVERRIDES))
	python -m stages.repro

test: $(STAMP)  ## run the tests
	python -m pytest --numprocesses 2 --dist loadfile

lint: $(STAMP)  ## format, lint, types, layers
	ruff format --check .
	ruff check .
	mypy
	lint-imports

check: lint test  ## all that must hold before a commit

clean:  ## remove what was built here; the DVC cache and its remote stay
	rm -rf artifacts .venv build *.egg-info

# torch alone and first: without its dependencies nothing of CUDA's is fetched before the build is known.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), f"Python 3.11 or newer is needed, this is {sys.version}"'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-deps '$(TORCH)'
	$(BIN)/python stages/cpu_torch.py
	$(BIN)/pip install --quiet --constraint constraints.txt '$(TORCH)' --editable '.[$(EXTRAS)]'
	touch $@
