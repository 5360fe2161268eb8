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
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

setup: ## install what is needed (packages; nothing of the boot set-up changes)
	@scripts/setup.sh

build: setup ## build all programs
	$(CARGO_BUILD) --bins --lib --example conform

run: ## profile a real Redis on a real kernel, show where it is hot (target/run/redis)
	@scripts/setup.sh run
	@cargo build --profile quick --no-default-features -p tierscope-lab -p tierscope-cli -p tierscope-toucher --bin first-light
	@$(TARGET)/quick/first-light

test: setup ## unit and property tests, then modules and machines on every kernel
	@status=0; \
	$(STEP) 'cargo build' $(CARGO_BUILD) --bins --lib --tests --example conform || exit 1; \
	$(STEP) --cargo 'cargo test' cargo test --workspace --no-fail-fast || status=1; \
	$(STEP) 'kernels fetched' $(LAB) fetch || exit 1; \
	$(LAB) test || status=1; \
	exit $$status

test-all: test ## also what takes too long for every change; stores the result in docs/test-all.txt
	@scripts/setup.sh spark
	@scripts/test-all $(TARGET)

test-kernels: build ## modules and cases on every kernel of lab/kernels.toml; stores the results in docs/kernels.json, resumable
	@$(LAB) kernels

test-debug-kernel: build ## builds kernels that check themselves: deliberate faults, 10^7 probes against all mutations, 10^8 on a stock one; docs/debug-kernels.json, resumable
	@scripts/setup.sh debug
	@$(LAB) debug

lint: setup ## formatting, clippy, documentation; sparse and checkpatch for the modules
	@status=0; \
	$(STEP) 'cargo fmt' cargo fmt --all --check || status=1; \
	$(STEP) 'cargo clippy' cargo clippy --workspace --all-targets -- -D warnings || status=1; \
	$(STEP) 'cargo doc' env RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps || status=1; \
	$(STEP) 'shell scripts parse' scripts/check-scripts || status=1; \
	$(STEP) 'modules: sparse, checkpatch' scripts/check-modules || status=1; \
	$(STEP) 'circuit: verilator' verilator --lint-only -Wall -y rtl rtl/nemo_controller.v || status=1; \
	exit $$status

bench-module: build ## accuracy, cost, lock holds, stress, CI time: target/bench/module.json, resumable
	@$(LAB) bench module

bench-accuracy: build ## instruments compared at terabytes, and on ordinary programs: target/bench/accuracy.json, resumable
	@scripts/setup.sh bench
	@$(LAB) bench accuracy

figures: build ## write what documents show of stored figures: README.md, docs/memory-model.md, pages and index of the papers' claims
	@$(LAB) figures
	@scripts/memory_page.py
	@$(TARGET)/debug/tierscope reproduce --pages -o .

bench-figures: build ## claims of PAPER=telescope, multi-clock, nemo or ptat: two seeds of what takes little time, next to stored figures
	@$(TARGET)/debug/tierscope reproduce --reduced . $(or $(PAPER),telescope)

# Installed programs are optimized more than the programs that tests run, and
# have no debug assertions.
release: setup ## build the program that is installed
	cargo build --release -p tierscope-cli --bins

install: release ## install it: PREFIX=/usr/local, DESTDIR=
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install

uninstall: release ## remove what `make install` installed; changed settings and recordings stay
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install --uninstall

deb: release ## make a Debian package of it (target/debian)
	@scripts/deb

bench-reports: build ## reports, live view, exporter, exports, package: target/bench/reports.json, resumable
	@$(LAB) bench reports

bench-sim: build ## the simulated machine: speed, accuracy, exactness, agreement with a real kernel: target/bench/sim.json, resumable
	@$(LAB) bench sim

bench-vm: build ## the instrumented virtual machine: slow node, exactness, cost of each part: target/bench/vm.json, resumable
	@scripts/setup.sh bench
	@$(LAB) bench vm

bench-counters: build ## telemetry in the memory controller: speed, tenants, a neighbour held to its cap: target/bench/counters.json, resumable
	@scripts/setup.sh bench
	@$(LAB) bench counters

bench-hardware: build ## PEBS, ACCESSED bits, hint faults, CXL's hot lists and NEMO's counters at one budget, simulated: docs/hardware.txt, resumable
	@$(LAB) bench hardware
	@scripts/stored.py hardware $(TARGET)/bench/hardware.json

bench-tiering: build ## policies on real servers in the instrumented virtual machine: target/bench/tiering.json, resumable
	@scripts/setup.sh bench
	@$(LAB) bench tiering

bench-reclaim: build ## cold memory given back to zswap, by the kernel's MGLRU and ours; cost of a walk by size: target/bench/reclaim.json, resumable
	@scripts/setup.sh bench
	@$(LAB) bench reclaim

bench-traces: build ## traces: readers, a bus monitor's captures, recording compared with lackey, files of other tools: target/bench/traces.json, resumable
	@scripts/setup.sh bench
	@$(LAB) bench traces

bench-rtl: build ## the telemetry circuit: 10^8 requests against the cycle model, seeded defects, resources: target/bench/rtl.json, resumable
	@scripts/setup.sh bench
	@$(LAB) bench rtl

bench-chaos: build ## kill at every call that changes a file, and at random times; long lives, hotplug: docs/chaos.txt, resumable
	@scripts/setup.sh chaos
	@$(LAB) bench chaos
	@scripts/stored.py chaos $(TARGET)/bench/chaos.json

fuzz: build ## fuzz all readers of foreign bytes until nothing new comes, resumable: docs/fuzz.txt (MINUTES=N to stop earlier)
	@rustup toolchain list | grep -q nightly || rustup toolchain install nightly --profile minimal
	@cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
	@scripts/fuzz_campaign.py $(TARGET) $(MINUTES)

test-spark: build ## many machines' TLB misses, merged by Spark, compared with our own parser (installs PySpark into target/venv)
	@scripts/setup.sh spark
	@scripts/test-spark $(TARGET)

test-damo: build ## damo from PyPI reads our export, and we its recording of a VM (installs damo into target/damo)
	@scripts/setup.sh damo
	@scripts/test-damo $(TARGET)

foreign-files: build ## damo, perf, trace-cmd, lackey and QEMU write the files of crates/cli/tests/foreign again
	@scripts/setup.sh foreign
	@scripts/foreign-files $(TARGET)

clean: ## remove everything that was built, fetched and recorded
	rm -rf target $(TARGET)

.PHONY: help setup build run test test-all test-kernels test-debug-kernel lint bench-module bench-accuracy bench-reports bench-sim bench-vm bench-counters bench-hardware bench-tiering bench-traces bench-reclaim bench-rtl bench-chaos figures fuzz test-spark test-damo foreign-files release install uninstall deb clean
.DEFAULT_GOAL := help
