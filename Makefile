# One command for each kind of work; .venv is made when it is missing.
PYTHON ?= python3
PYTHON_VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV := .venv
BIN := $(VENV)/bin
NATIVE_TESTS := $(wildcard $(addprefix tests/native/,*.cpp fuzz/*.cpp fuzz/*.hpp))
NATIVE := $(wildcard $(addprefix bpe_core/native/,*.cpp *.hpp bindings/*.cpp bindings/*.hpp))
MODULES := $(wildcard bpe_core/*.py bpe_core/*/*.py pipelines/*.py pipelines/*/*.py)
BENCH := out/bench-venv
OLDEST := out/oldest-venv
WHEEL := out/wheel-venv/$(PYTHON_VERSION)
SYSTEM ?= linux
ARCH ?= $(shell uname -m)
PYTHONS ?= $(foreach version,3.11 3.12 3.13 3.14,$(shell python$(version) -c 'import sys; print(sys.executable)' 2>/dev/null))
TARGETS ?= linux-x86_64 linux-aarch64 macos-arm64 macos-x86_64
SEED := 1
SECONDS := 600
PYTEST := $(BIN)/python -m pytest
# Three processes for two cores, as tests also wait; tests of a file stay together, for what they share.
IN_PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder --durations=25
CHANGE := not nightly and not soak and not engines and not smoke
CODE := out/benchmarks/code-1gb.txt

# Cache the modules that pytest rewrites: rewriting them takes 8 seconds in each process.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart check test smoke nightly soak long-run oldest fuzz fuzz-native simulate engines lint format types schema tables libraries bench bench-data bench-quick sanitize sanitize-threads sdist wheel release docs docs-serve clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

# The package in place, compiled, with what a build needs; what tests and lint need comes on top.
$(VENV)/installed: pyproject.toml setup.py $(NATIVE)
	@$(PYTHON) tools/environment.py $(VENV)
	@touch $@

$(VENV)/installed-test: pyproject.toml | $(VENV)/installed
	@$(PYTHON) tools/environment.py $(VENV) --extra test
	@touch $@

$(VENV)/installed-lint: pyproject.toml | $(VENV)/installed
	@$(PYTHON) tools/environment.py $(VENV) --group lint
	@touch $@

$(VENV)/installed-docs: pyproject.toml | $(VENV)/installed
	@$(PYTHON) tools/environment.py $(VENV) --group docs
	@touch $@

# The benchmarks have an environment of their own, with other tokenizers and the package installed.
$(BENCH)/installed: benchmarks/requirements.txt pyproject.toml setup.py $(NATIVE) $(MODULES)
	test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python benchmarks/install.py
	touch $@

## make quickstart   train a tokenizer on examples/data and encode it into out/quickstart
quickstart: $(VENV)/installed
	@echo "training a tokenizer on examples/data and encoding it: some seconds"
	$(BIN)/beam-bpe build configs/quickstart.yaml

## make check        in under a minute: lint, types, layers, tests without Beam and processes
check: $(VENV)/installed-lint $(VENV)/installed-test
	$(MAKE) --no-print-directory --jobs 2 --output-sync lint types
	TESTS=check $(PYTEST) $(IN_PARALLEL) -m "$(CHANGE) and not beam and not process and not slow"

## make test         what a change must pass: every test but those of `make nightly`
test: $(VENV)/installed-test
	$(PYTEST) $(IN_PARALLEL) -m "$(CHANGE)"

## make smoke        one build on each engine: portable, Prism, embedded Flink
smoke: $(VENV)/installed-test
	$(PYTEST) tests/engines -n 2 --dist worksteal --durations=25 -m smoke

## make nightly      all there is, by Beam and in processes, with many examples: before a release
nightly: $(VENV)/installed-test $(VENV)/installed-docs wheel
	TESTS=nightly REQUIRE_ENGINES=1 $(PYTEST) $(IN_PARALLEL) -m "not soak" -o timeout=900
	TESTS=nightly $(MAKE) soak fuzz fuzz-native simulate oldest

## make soak         the long tests: large texts, many merges, memory
soak: $(VENV)/installed-test
	$(PYTEST) -m soak -o timeout=3600

## make long-run     build, interrupt, resume and add for SECONDS=600, in one process, then by commands
long-run: $(VENV)/installed-test
	rm -rf out/long-run
	$(BIN)/python benchmarks/long_run.py out/long-run/process --seconds $(SECONDS)
	$(BIN)/python benchmarks/long_run.py out/long-run/commands --seconds $(SECONDS) --commands

## make oldest       the tests of a change with the oldest versions of the dependencies
oldest:
	$(PYTHON) tools/oldest_dependencies.py $(OLDEST)
	PYTHONSAFEPATH=1 $(OLDEST)/bin/python -m pytest $(IN_PARALLEL) -m "$(CHANGE)"

## make fuzz         files changed at random: through readers, whole builds, and tokenizers; SEED=1 of the first
fuzz: $(VENV)/installed-test
	$(BIN)/python tests/support/fuzzing.py --readers 20000 --builds 2000 --seed $(SEED)
	$(BIN)/python tests/support/tokenizer_fuzzing.py --cases 20000 --seed $(SEED)

## make fuzz-native  libFuzzer over the native code, for SECONDS=600 in all; needs clang
fuzz-native: $(VENV)/installed-test
	$(BIN)/python tests/support/native_fuzzing.py --seconds $(SECONDS)
	FUZZ_COLLECTED=1 $(PYTEST) tests/bpe_core/test_fuzz_corpus.py -o timeout=900

## make simulate     whole random builds that meet faults, each from a seed, for SECONDS=600; SEED=1 of the first
simulate: $(VENV)/installed-test
	$(BIN)/python tests/simulation --seconds $(SECONDS) --seed $(SEED)

## make engines      one build on every runner: Flink (embedded, a cluster), Prism, portable, direct
engines: $(VENV)/installed-test wheel
	REQUIRE_ENGINES=1 $(PYTEST) tests/engines -m "not soak" -o timeout=900

## make lint         ruff and clang-format, checking only
lint: $(VENV)/installed-lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/clang-format --dry-run --Werror $(NATIVE) $(NATIVE_TESTS)

## make format       ruff and clang-format, changing files
format: $(VENV)/installed-lint
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(NATIVE) $(NATIVE_TESTS)

## make types        mypy, strict
types: $(VENV)/installed-lint $(VENV)/installed-test
	$(BIN)/mypy

## make schema       write configs/build.schema.json and configs/manifest.schema.json
schema: $(VENV)/installed
	$(BIN)/python -m pipelines.config.schema > configs/.build.schema.json
	mv configs/.build.schema.json configs/build.schema.json
	$(BIN)/python -m pipelines.manifest > configs/.manifest.schema.json
	mv configs/.manifest.schema.json configs/manifest.schema.json

## make tables       write the Unicode tables of scanners and normalization, fingerprints of patterns
tables: $(VENV)/installed-test
	$(BIN)/python bpe_core/native/generate_unicode_tables.py
	$(BIN)/python bpe_core/native/generate_bert_classes.py
	$(BIN)/python bpe_core/native/generate_normalization_tables.py
	$(BIN)/python bpe_core/split_patterns/generate_unicode_sets.py
	$(BIN)/python -m bpe_core.generate_scanner_fingerprints

## make libraries    fetch the JavaScript libraries of pages from npm, and compare their checksums
libraries: $(VENV)/installed
	$(BIN)/python tools/fetch_libraries.py

## make bench        the benchmarks, beside other tokenizers; results in benchmarks/results.json
bench: $(BENCH)/installed
	$(BENCH)/bin/python benchmarks/run.py

## make bench-data   1 GB of source code for them, from Debian's packages
bench-data: $(CODE)

$(CODE): | $(BENCH)/installed
	$(BENCH)/bin/python benchmarks/fetch_code.py

## make bench-quick  the same on little text, in under two minutes; changes no file
bench-quick: $(BENCH)/installed
	$(BENCH)/bin/python benchmarks/run.py --quick

## make sanitize     the native tests under the address and undefined-behaviour sanitizers
sanitize: $(VENV)/installed-test
	bash tests/sanitize.sh

## make sanitize-threads  the part of it that threads share, under the thread sanitizer
sanitize-threads: $(VENV)/installed-test
	bash tests/sanitize.sh thread

## make sdist        the source distribution, in dist/
sdist: $(VENV)/installed
	@$(PYTHON) tools/environment.py $(VENV) --group sdist
	$(BIN)/python -m build --sdist --no-isolation --outdir dist

# What builds wheels has an environment of its own for each Python: a compiler is in it.
$(WHEEL)/installed: deploy/requirements-wheel.txt
	test -x $(WHEEL)/bin/python || $(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/python -m pip install --quiet --requirement deploy/requirements-wheel.txt
	touch $@

## make wheel        bpe-core for every Linux with glibc 2.28, and bpe-beam, in dist/; PYTHON=python3.12, ARCH=aarch64, SYSTEM=macos
wheel: $(WHEEL)/built-$(SYSTEM)-$(ARCH)

$(WHEEL)/built-%: $(WHEEL)/installed pyproject.toml setup.py $(wildcard deploy/*.py) $(NATIVE) $(MODULES)
	$(WHEEL)/bin/python deploy/build_wheel.py --target $* --dest dist
	touch $@

## make docs         the site, in out/site; every warning is an error. make docs-serve shows it while you write
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-serve: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

## make release      all wheels and source distributions in dist/release, tried in clean environments
release: $(WHEEL)/installed
	$(WHEEL)/bin/python deploy/build_release.py --pythons $(PYTHONS) --targets $(TARGETS)

## make clean        remove what make made; of out/ that alone: other builds there stay
clean:
	rm -rf build dist *.egg-info bpe_core/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf out/quickstart out/fuzz out/benchmarks out/bench-venv out/oldest-venv out/long-run out/wheel-venv out/wheels out/site out/site-scripts
	rm -f $(VENV)/installed*
