# tierscope: every target sets up what it needs, on a plain Debian 12.
SHELL := /bin/bash
export PATH := $(PATH):$(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)/bin:/usr/sbin:/sbin
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
LAB := $(TARGET)/debug/lab
# The whole workspace with one set of features: nothing is compiled twice. Before
# `cargo test` that set includes those of the tests, some of which want the plugin.
CARGO_BUILD := cargo build --workspace
STEP := scripts/step

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

setup: ## install what is needed (packages; nothing of the boot set-up changes)
	@scripts/setup.sh

build: setup ## build all programs
	$(CARGO_BUILD) --bins --lib

run: ## profile a real Redis on a real kernel, show where it is hot (target/run/redis)
	@scripts/setup.sh run
	@$(CARGO_BUILD) --bin lab
	@$(LAB) first-light

test: setup ## unit and property tests, then modules and machines on every kernel
	@status=0; \
	$(STEP) 'cargo build' $(CARGO_BUILD) --bins --lib --tests || exit 1; \
	$(STEP) --cargo 'cargo test' cargo test --workspace --no-fail-fast || status=1; \
	$(STEP) 'kernels fetched' $(LAB) fetch || exit 1; \
	$(LAB) test || status=1; \
	exit $$status

lint: setup ## formatting, clippy, documentation; sparse and checkpatch for the modules
	@status=0; \
	$(STEP) 'cargo fmt' cargo fmt --all --check || status=1; \
	$(STEP) 'cargo clippy' cargo clippy --workspace --all-targets -- -D warnings || status=1; \
	$(STEP) 'cargo doc' env RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps || status=1; \
	$(STEP) 'shell scripts parse' scripts/check-scripts || status=1; \
	$(STEP) 'modules: sparse, checkpatch' scripts/check-modules || status=1; \
	exit $$status

bench-light: build ## accuracy, cost, lock holds, stress, CI time: target/bench/light.json, resumable
	@$(LAB) bench light

bench-see: build ## instruments beside each other at terabytes: target/bench/see.json, resumable
	@$(LAB) bench see

figures: build ## write the table of figures in README.md from target/bench
	@$(LAB) figures

install: ## install what was built: PREFIX=/usr/local, DESTDIR=
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install

uninstall: ## remove what `make install` installed; changed settings and recordings stay
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install --uninstall

deb: build ## make a Debian package of what was built (target/debian)
	@scripts/deb

bench-show: build ## reports, live view, exporter, exports, package: target/bench/show.json, resumable
	@$(LAB) bench show

bench-sim: build ## the simulated machine: speed, accuracy, exactness, beside a real kernel: target/bench/sim.json, resumable
	@$(LAB) bench sim

bench-machine: build ## the instrumented virtual machine: slow node, exactness, cost of each part: target/bench/machine.json, resumable
	@scripts/setup.sh bench
	@$(LAB) bench machine

bench-count: build ## telemetry in the memory controller: speed, tenants, a neighbour held to its cap: target/bench/count.json, resumable
	@scripts/setup.sh bench
	@$(LAB) bench count

bench-place: build ## policies on real servers in the instrumented virtual machine: target/bench/place.json, resumable
	@scripts/setup.sh bench
	@$(LAB) bench place

bench-reclaim: build ## cold memory given back to zswap, by the kernel's MGLRU and ours; cost of a walk by size: target/bench/reclaim.json, resumable
	@scripts/setup.sh bench
	@$(LAB) bench reclaim

bench-trace: build ## traces: readers, a bus monitor's captures, recording beside lackey: target/bench/trace.json, resumable
	@scripts/setup.sh bench
	@$(LAB) bench trace

test-spark: build ## many machines' TLB misses, merged by Spark, beside our own parser (installs PySpark into target/venv)
	@scripts/setup.sh spark
	@scripts/test-spark $(TARGET)

clean: ## remove everything that was built, fetched and recorded
	rm -rf target $(TARGET)

.PHONY: help setup build run test lint bench-light bench-see bench-show bench-sim bench-machine bench-count bench-place bench-trace bench-reclaim figures test-spark install uninstall deb clean
.DEFAULT_GOAL := help
