# Everything a newcomer types. `make run` starts the platform, `make test` proves it.
#
# What is built lands outside the checkout, so that a fresh clone starts warm and two clones share
# one cache. Only the finished binary is copied back, to target/release/falaj.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/falaj
export CARGO_TARGET_DIR ?= $(CACHE)/target
export PATH := $(CACHE)/tools/bin:$(HOME)/.cargo/bin:$(PATH)

# Where `make run` keeps its data and listens; both can be given: make run DATA=/srv/falaj
DATA ?= $(or $(XDG_DATA_HOME),$(HOME)/.local/share)/falaj
LISTEN ?= 127.0.0.1:7470

# The crash harness: full cycles of kill -9, and one power cut for every POWER_EVERY of them.
CYCLES ?= 1000
POWER_EVERY ?= 4
SECONDS ?= 60

DEV_BINARY := $(CARGO_TARGET_DIR)/debug/falaj
TEST_ENV := FALAJ_BIN=$(DEV_BINARY) FALAJ_TEST_PYTHON=$(CACHE)/venv/bin/python

.PHONY: help run build test lint test-rust test-e2e test-mlflow test-serving test-feast test-lake crash-short bench crash fuzz setup

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Whoever tries it out waits for the build, not for the last tenth of speed.
run: export CARGO_PROFILE_RELEASE_LTO ?= off
run: build ## Build the platform and start it on loopback (DATA=dir LISTEN=addr:port)
	@install -d -m 0700 "$(DATA)"
	@scripts/setup engine target/release/falaj "$(DATA)"
	exec target/release/falaj serve --data-dir "$(DATA)" --listen "$(LISTEN)"

build: ## Build the release binary: target/release/falaj
	@scripts/setup build
	cargo build --release --locked -p falaj
	@install -D -m 0755 "$(CARGO_TARGET_DIR)/release/falaj" target/release/falaj.new
	@mv -f target/release/falaj.new target/release/falaj

setup: ## Install what the tests need, where it is missing
	@scripts/setup test

lint: setup ## Formatting, clippy, and the rules for dependencies
	@scripts/stage "format" cargo fmt --all --check
	@scripts/stage "clippy" cargo clippy --workspace --all-targets --locked -- -D warnings
	@scripts/stage "dependencies" cargo deny --locked --log-level error check licenses bans sources

test: lint ## Run every check and every test
	@scripts/stage "build" cargo build --workspace --locked
	@$(TEST_ENV) scripts/with-services $(MAKE) --no-print-directory test-rust test-e2e test-mlflow test-serving test-feast test-lake
	@$(MAKE) --no-print-directory crash-short

# The parts of `make test`. They need the services: scripts/with-services make test-rust
test-rust:
	@scripts/stage "rust tests" cargo nextest run --workspace --locked

test-e2e:
	@scripts/stage "end-to-end tests" $(CACHE)/venv/bin/python -m pytest -q tests

# The stock MLflow client and OpenTelemetry exporter, doing what people do with them.
test-mlflow:
	@scripts/stage "stock MLflow client" $(CACHE)/mlflow-venv/bin/python -m pytest -q -W ignore \
		tests/mlflow/test_stock_client.py tests/mlflow/test_stock_traces.py tests/mlflow/test_stock_evaluation.py \
		tests/mlflow/test_moving.py tests/mlflow/test_sync.py tests/mlflow/test_models.py tests/mlflow/test_predict.py tests/mlflow/test_jobs.py \
		--target sqlite --target postgres

# The stock clients of Triton and KServe. The two register the same protobuf names, hence two processes.
test-serving:
	@scripts/stage "stock Triton clients" $(CACHE)/serving-venv/bin/python -m pytest -q tests/serving \
		--ignore tests/serving/test_kserve.py
	@scripts/stage "stock KServe clients" $(CACHE)/kserve-venv/bin/python -m pytest -q tests/serving/test_kserve.py

# The stock Feast SDK with its remote stores, and stock pyarrow.
test-feast:
	@scripts/stage "stock Feast SDK" $(CACHE)/feast-venv/bin/python -m pytest -q -W ignore tests/feast

# Tables that the stock libraries of Delta and Iceberg wrote.
test-lake:
	@scripts/stage "stock Delta and Iceberg" $(CACHE)/lake-venv/bin/python -m pytest -q -W ignore tests/lake

crash-short:
	@$(TEST_ENV) scripts/stage "crash, short" $(CARGO_TARGET_DIR)/debug/falaj-crash \
		--kill-cycles 20 --power-cycles 4 --control-cycles 4 --disk-full

bench: setup ## Measure speed, as ratios within one run
	@scripts/stage "build" cargo build --release --locked -p falaj -p falaj-bench
	@FALAJ_BIN=$(CARGO_TARGET_DIR)/release/falaj $(CARGO_TARGET_DIR)/release/falaj-bench $(ARGS)

crash: setup ## Kill the server and cut its power, CYCLES=1000 times
	@CARGO_PROFILE_RELEASE_LTO=off scripts/stage "build" cargo build --release --locked -p falaj -p falaj-testkit
	@FALAJ_BIN=$(CARGO_TARGET_DIR)/release/falaj $(CARGO_TARGET_DIR)/release/falaj-crash \
		--kill-cycles $(CYCLES) --power-cycles $$(( ($(CYCLES) + $(POWER_EVERY) - 1) / $(POWER_EVERY) )) \
		--control-cycles 10 --disk-full

fuzz: ## Fuzz every parser for SECONDS=60 each (needs a nightly toolchain)
	@scripts/setup fuzz
	@scripts/fuzz "$(SECONDS)"
