.DEFAULT_GOAL := help
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
WHOLE_TESTS := tests/acceptance tests/docs tests/integration/vllm
PARTS_TESTS := $(filter-out tests/integration/vllm,$(wildcard tests/integration/[a-z]*))
UNITS_TESTS := tests/cases tests/properties tests/unit
LLAMA_INDEX_VENV ?= .venv-llama-index
LLAMA_INDEX_BIN := $(LLAMA_INDEX_VENV)/bin
LLAMA_INDEX_TESTS := $(addsuffix llama_index,tests/unit/ tests/integration/) tests/cases/test_adapters_llama_index.py
# LlamaIndex's oldest one is what its own environment has: older ones do not tell whose run it is.
LOWEST_VENV ?= .venv-lowest
LOWEST_BIN := $(LOWEST_VENV)/bin
# LangChain's standard tests go with the newest one only.
LOWEST_TESTS := $(filter-out %/test_standard.py %/test_llm_cache.py,$(wildcard tests/integration/langchain/test_*.py)) \
  tests/unit/langchain tests/cases/test_adapters_langchain.py

# With real servers on two cores a deadline may be missed: what fails is asked again, alone. What fails
# twice fails. (1: folder of the interpreter, 2: tests)
pytest = $(1)/python -m pytest -m "not prove" -o cache_dir=.pytest_cache/$@ $(2) || $(1)/python -m pytest \
  -m "not prove" -o cache_dir=.pytest_cache/$@ --last-failed --last-failed-no-failures none $(2)

help:  ## Show what can be done
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

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

check: lint  ## The fast part of the next: neither minutes nor an engine
	$(BIN)/python -m pytest -m "not prove" tests/unit tests/cases tests/properties $(addprefix tests/integration/,langchain pipeline targets)

# The longest ones first: side by side, the short ones fill what is left.
test: lint test-parts test-whole test-units test-llama-index  ## Every promise, with small counts (-j2: side by side)

test-parts: $(VENV)/.installed  ## Stores, gateway, command line, frameworks, with their real servers
	$(call pytest,$(BIN),$(PARTS_TESTS))

test-units: $(VENV)/.installed  ## Cases, properties, units
	$(call pytest,$(BIN),$(UNITS_TESTS))

test-whole: $(VENV)/.installed  ## The demo, the documentation, a real vLLM
	$(call pytest,$(BIN),$(WHOLE_TESTS))

prove: $(VENV)/.installed $(LLAMA_INDEX_VENV)/.installed  ## The large counts
	$(BIN)/python -m pytest -m prove
	$(LLAMA_INDEX_BIN)/python -m pytest -m prove $(LLAMA_INDEX_TESTS)

# LlamaIndex's OpenAI classes refuse openai 3: a second, smaller environment with openai 2.
$(LLAMA_INDEX_VENV)/.installed: requirements/llama-index.txt pyproject.toml
	test -x $(LLAMA_INDEX_BIN)/python || $(PYTHON) -m venv $(LLAMA_INDEX_VENV)
	$(LLAMA_INDEX_BIN)/python -m pip --disable-pip-version-check install -q --no-compile --no-deps -r requirements/llama-index.txt
	$(LLAMA_INDEX_BIN)/python -m pip --disable-pip-version-check install -q --no-deps --no-build-isolation -e .
	$(LLAMA_INDEX_BIN)/python -c "import llama_index.llms.openai_like"
	touch $@

test-llama-index: $(LLAMA_INDEX_VENV)/.installed  ## What needs LlamaIndex's OpenAI classes
	$(call pytest,$(LLAMA_INDEX_BIN),$(LLAMA_INDEX_TESTS))

$(LOWEST_VENV)/.installed: requirements/llama-index.txt requirements/lowest.txt pyproject.toml
	test -x $(LOWEST_BIN)/python || $(PYTHON) -m venv $(LOWEST_VENV)
	$(LOWEST_BIN)/python -m pip --disable-pip-version-check install -q --no-compile --no-deps -r requirements/llama-index.txt
	$(LOWEST_BIN)/python -m pip --disable-pip-version-check install -q --no-deps -r requirements/lowest.txt
	$(LOWEST_BIN)/python -m pip --disable-pip-version-check install -q --no-deps --no-build-isolation -e .
	touch $@

test-lowest: $(LOWEST_VENV)/.installed  ## LangChain's adapter with the oldest LangChain it allows
	$(LOWEST_BIN)/python -m pytest -m "not prove" $(LOWEST_TESTS)

bench: $(VENV)/.installed  ## Speed and memory
	$(BIN)/python -m pytest tests/benchmarks --override-ini testpaths=tests/benchmarks

# With the Python that has vLLM's GPU build: it needs this folder, httpx, stamina and openai too.
GPU_PYTHON ?= python3
gpu-check:  ## What only a GPU shows, in 8 minutes (GPU_PYTHON=python with vLLM, MODEL=name)
	$(GPU_PYTHON) -m ragcache.testing.gpu_check $(if $(MODEL),--model "$(MODEL)")

clean:  ## Remove what was built here
	rm -rf $(VENV) $(LLAMA_INDEX_VENV) $(LOWEST_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: help install demo lint check test test-parts test-whole test-units test-llama-index test-lowest prove bench gpu-check clean
