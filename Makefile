.DEFAULT_GOAL := help
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin

help:  ## Show what can be done
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(VENV)/.installed: $(wildcard requirements/*) pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	requirements/install.sh $(BIN)/python
	$(BIN)/python -m pip --disable-pip-version-check install -q --no-deps --no-build-isolation -e .
	touch $@

install: $(VENV)/.installed  ## Make a virtual environment with everything

demo: $(VENV)/.installed  ## Ask 40 questions with and without ragcache (DOCS=folder for your own)
	$(BIN)/ragcache demo $(if $(DOCS),--docs "$(DOCS)")

lint: $(VENV)/.installed  ## Style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint  ## Every promise, with small counts
	$(BIN)/python -m pytest -m "not prove"

prove: $(VENV)/.installed  ## The large counts
	$(BIN)/python -m pytest -m prove

bench: $(VENV)/.installed  ## Speed and memory
	$(BIN)/python -m pytest tests/benchmarks --override-ini testpaths=tests/benchmarks

clean:  ## Remove what was built here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: help install demo lint test prove bench clean
