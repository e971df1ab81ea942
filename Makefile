# The only list of commands. Each target sets up what it needs; nothing is done twice.

PYTHON ?= $(firstword $(wildcard /usr/bin/python3.11 /usr/local/bin/python3.11) python3)
VENV := .venv
BIN := $(VENV)/bin
DONE := .make
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

RUST := $(shell find rust benches/native -path rust/fuzz -prune -o \( -name '*.rs' -o -name Cargo.toml -o -name clippy.toml \) -print) Cargo.toml Cargo.lock
PYTHON_SOURCES := $(shell find python tests tools benches docs -name '*.py' -o -name '*.pyi' 2>/dev/null)

export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
export CARGO_TERM_COLOR ?= auto
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# An extension module finds Python's symbols in whoever loads it.
export PYO3_BUILD_EXTENSION_MODULE := 1

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(DONE)/build ## Play recorded and synthetic traffic from live sockets to a Spark table and a report
	trunkline demo

test: lint rust-test python-test wheel-check ## Everything a contributor must see green

# The crate of the area's name, or the tests of its machine; the folder of its name; and what holds the house together.
check: $(if $(AREA),$(DONE)/build) ## While at work: the tests of an AREA (mc0, capture, spark …) that need no JVM and little time
	@test -n "$(and $(AREA),$(wildcard rust/$(AREA) rust/wire/tests/$(AREA)_*.rs tests/$(AREA)))" || { echo 'AREA is a folder of rust or of tests: make check AREA=mc0'; exit 2; }
	if [ -d rust/$(AREA) ]; then cargo test --quiet --locked --package trunkline-$(AREA); \
	elif ls rust/wire/tests/$(AREA)_*.rs >/dev/null 2>&1; then cargo test --quiet --locked --package trunkline-wire --test '$(AREA)_*'; fi
	python -m pytest --quiet --numprocesses 2 --dist loadgroup -m "not spark and not slow" $(wildcard tests/$(AREA)) tests/meta

build: $(DONE)/build ## Build the release extension into .venv

$(DONE)/venv: requirements.txt
	@echo 'Setting up $(VENV): the packages for development, then the extension'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "trunkline needs Python 3.11 or later: make PYTHON=…")'
	$(BIN)/pip install -qq --require-hashes --requirement requirements.txt
	mkdir -p $(DONE) && touch $@

$(DONE)/build: $(DONE)/venv pyproject.toml $(RUST)
	@echo 'Compiling the extension: the first time takes 10 to 20 minutes on a slow machine; cargo counts the crates'
	PIP_QUIET=2 maturin develop --release --locked
	touch $@

lint: $(DONE)/lint-rust $(DONE)/lint-python ## rustfmt, clippy, ruff, mypy, pyright, stubtest

$(DONE)/lint-rust: $(DONE)/venv $(RUST)
	cargo fmt --check
	cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
	touch $@

$(DONE)/lint-python: $(DONE)/build $(PYTHON_SOURCES) pyproject.toml
	ruff format --check --quiet python tests tools benches examples
	ruff check --quiet python tests tools benches examples
	mypy
	basedpyright --project tests/typing --warnings
	python -m mypy.stubtest trunkline._native --mypy-config-file pyproject.toml
	touch $@

rust-test: $(DONE)/venv ## The tests of the Rust crates
	TRUNKLINE_LIBZMQ=$$(python tools/libzmq.py) TRUNKLINE_PYTHON=$(CURDIR)/$(BIN)/python \
		TRUNKLINE_NATS_SERVER=$(CURDIR)/$(BIN)/nats-server cargo test --quiet --locked --workspace

PEERS := 0.3 0.5.1 1.0.2 s3 $(patsubst tests/live/requirements-%.txt,%,$(wildcard tests/live/requirements-libzmq-*.txt))

peers: $(PEERS:%=$(DONE)/peer-%) ## Install the released peers that the tests talk to, each by itself: Constellations, a server of S3, versions of libzmq

# Wheels of a Python that is no longer made, of which only the library is used.
$(DONE)/peer-libzmq-%: tests/live/requirements-libzmq-%.txt $(DONE)/venv
	rm -rf .peers/libzmq-$*
	$(BIN)/pip install -qq --no-deps --require-hashes --only-binary :all: --platform manylinux1_x86_64 \
		--python-version 3.5 --implementation cp --abi cp35m --target .peers/libzmq-$* --requirement $<
	touch $@

$(DONE)/peer-%: tests/live/requirements-%.txt $(DONE)/venv
	rm -rf .peers/$* && $(PYTHON) -m venv .peers/$*
	.peers/$*/bin/pip install --quiet --no-deps --require-hashes --requirement $<
	touch $@

python-test: $(DONE)/build peers ## The tests of the Python package, against live sockets, satellites and a live Spark
	python -m pytest --quiet --numprocesses 3 --dist loadgroup --max-worker-restart 0

conformance: $(DONE)/build peers ## The tests of requirements over the other transports
	for transport in libzmq zeromq; do TRUNKLINE_TRANSPORT=$$transport python -m pytest --quiet --numprocesses 2 --dist loadgroup --max-worker-restart 0 -m req tests/cdtp tests/dcp tests/mc0 tests/mtl || exit 1; done

generated: $(DONE)/build ## Write what is made from the code: conformance tables, lists of protocols, the schema of JSON, manual pages, the dashboard, alerts
	python tools/requirements.py
	python tools/lists.py
	python tools/json_lines.py
	python tools/metrics.py
	python tools/alerts.py
	python tools/manual.py
	python tools/extras.py
	python tools/performance.py

wheel: $(DONE)/wheel ## Build the wheel into dist/

$(DONE)/wheel: $(DONE)/venv pyproject.toml README.md $(RUST) $(PYTHON_SOURCES)
	rm -rf dist && maturin build --release --locked --quiet --out dist
	touch $@

wheel-check: $(DONE)/wheel ## Install the wheel in an empty environment and make a round trip
	python tools/wheel_check.py dist/*.whl

release-check: $(DONE)/release ## Build what would be released, as far as this machine can, and hold it to what an index expects
	PATH=$(CURDIR)/$(VENV)-release/bin:$(PATH) VIRTUAL_ENV=$(CURDIR)/$(VENV)-release $(VENV)-release/bin/python tools/release_check.py

$(DONE)/release: requirements-release.txt
	test -x $(VENV)-release/bin/python || $(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/pip install --quiet --require-hashes --requirement $<
	mkdir -p $(DONE) && touch $@

PIN := uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-annotate --custom-compile-command 'make lock'
LIVE := $(PEERS:%=tests/live/requirements-%.txt)

lock: $(DONE)/venv ## Pin what is installed for development, with the hash of each file
	for name in requirements requirements-release; do $(PIN) $$name.in --output-file $$name.txt; done
	for file in $(LIVE); do $(PIN) --no-deps $$file --output-file $$file; done

audit: $(DONE)/venv ## Look up what is known of the locked dependencies; needs the network and cargo-audit
	pip-audit --strict --require-hashes --disable-pip --requirement requirements.txt
	cargo audit --deny warnings
	cargo audit --deny warnings --file rust/fuzz/Cargo.lock

fuzz: $(DONE)/venv ## Fuzz decoders, machines and captures, FUZZ_SECONDS each
	tools/fuzz.sh $${FUZZ_SECONDS:-30}

soak: $(DONE)/build ## Attack roles and captures for SOAK_SECONDS, an hour, load them as long, then a fleet of CDT, and kill streams; write benches/results
	python -m benches.strangers --seconds $${SOAK_SECONDS:-3600}
	python -m benches.endurance --seconds $${SOAK_SECONDS:-3600} --pieces 4
	python -m benches.cdt.soak
	python -m benches.spark.kills
	python -m benches.spark.kills --sink capture

bench: $(DONE)/build peers ## Measure side by side with the rivals; write benches/results
	cargo bench --locked --quiet --package trunkline-columns --package trunkline-capture --package trunkline-store
	python -m benches

coverage: $(DONE)/build peers ## Measure what the tests reach, in Python and in Rust; see docs/coverage.md
	python tools/coverage.py --numprocesses 3 --dist loadgroup --max-worker-restart 0

docs: $(DONE)/build ## Build the documentation into site/
	mkdocs build --strict --quiet

clean: ## Remove everything that was built
	rm -rf $(DONE) $(VENV) $(VENV)-release .peers target dist site rust/fuzz/target

.PHONY: help demo test check build lint rust-test peers python-test conformance generated wheel wheel-check release-check lock audit fuzz soak bench coverage docs clean
