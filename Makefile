# Two commands do all on a fresh machine: `make demo` and `make test`. Each sets up what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-all search lint bench up setup clean

demo: setup $(VENV)/.model ## one real turn after the other: traffic, feedback, retraining, gate, hot-load
	$(BIN)/python -m examples.support_desk

test: setup lint ## lint, types, layers, and every test that needs no real model
	$(BIN)/python -m pytest -m "not slow" -q

test-all: setup $(VENV)/.model $(VENV)/.trials lint ## everything, also the trials on the real model
	$(BIN)/python -m pytest -q --timeout 3600

search: setup ## the property tests on thousands of new examples
	$(BIN)/python -m pytest -m "not slow" -q --timeout 3600 --hypothesis-profile search $$(grep -rl 'import.* given' tests)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup $(VENV)/.model ## each prints a ratio against a named peer measured in the same run
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

up: setup ## gateway, Dagster webserver and daemon on ./flywheel.yaml
	$(BIN)/flywheel up

setup: $(VENV)/.installed

# The stamp is written last: an interrupted installation starts again.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Flywheel needs Python 3.11 or newer"'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,demo]'
	touch $@

$(VENV)/.trials: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[trials]'
	touch $@

$(VENV)/.model: $(VENV)/.installed
	$(BIN)/flywheel model pull smollm2-135m
	touch $@

clean: ## what the targets made, but no data
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
