# Everything a person or CI does with this tree. `make` shows the list.
#
# Rules of this file: a target calls tools and decides nothing else; every step says what it is and how long it took; nothing that `make test` does needs root
# or Docker; what is built goes into .venv and build/ here or into the user's cache, never anywhere else.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Stages share one virtual environment and two cores, and their output is read from top to bottom.
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# PYTHON=/path/to/python3 chooses the interpreter of a new virtual environment.
PYTHON ?=
PYTHON_MINIMUM := 3.11
GO_MINIMUM := 1.26
# One number orders the tests and feeds hypothesis; the one that a failed run printed brings that run back.
SEED ?= $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
SEED := $(SEED)
# More words for pytest: make test-unit ARGS='-k workqueue -x'
ARGS ?=
# Where make bench writes its pages, and more words for its fleets and for the CCM: make bench FLEET='--sizes 10,100' CCM='--trials 1'
REPORT ?=
FLEET ?=
CCM_REPORT ?=
CCM ?=
# Where make e2e-full writes what clusterctl and kubectl say of each situation.
SITUATIONS ?=
# Without a configuration the rack is furnished by itself: a silo, a user, a project, pools, sleds, an image.
RACK_CONFIG ?=
RACK_LISTEN ?= 127.0.0.1:12220
# What runs in the instances of the demo's rack: docker, none, or auto, which is docker where it can be used.
GUESTS ?= auto
# Set by .ci/run: a file that takes one line "seconds TAB result TAB stage" a stage.
STAGE_TIMES ?= /dev/null

# $(call stage,NAME,COMMANDS) says the name, runs the commands as one list, says the time; the exit code is theirs.
define stage
@printf '\n==> %s\n' '$(1)'; SECONDS=0; code=0; ( $(2) ) || code=$$?; \
if [ $$code -eq 0 ]; then result=ok; else result=FAILED; fi; \
printf '<== %s: %s after %d s\n' '$(1)' "$$result" $$SECONDS; \
printf '%d\t%s\t%s\n' $$SECONDS "$$result" '$(1)' >> '$(STAGE_TIMES)'; exit $$code
endef

# $(call pytest,FOLDER): its own closing line stays in sight, CI reads it.
pytest = $(BIN)/python -m pytest tests/$(1) -p randomly --randomly-seed=$(SEED) --hypothesis-seed=$(SEED) $(ARGS) \
	|| { code=$$?; echo "To repeat this order and these examples: make test-$(1) SEED=$(SEED)"; exit $$code; }

# $(call has_tests,FOLDER): not empty when tests/FOLDER holds tests.
has_tests = $(shell find tests/$(1) -name 'test_*.py' -print -quit 2>/dev/null)

# Prints the interpreter for the virtual environment: PYTHON, else the newest usable one. Says what is missing and how to get it when there is none.
define choose_python
old=''; bare=''; \
for python in $(PYTHON) $(if $(PYTHON),,python3.13 python3.12 python3.11 python3); do \
  version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
  if ! "$$python" -c 'import sys; sys.exit(sys.version_info < tuple(map(int, "$(PYTHON_MINIMUM)".split("."))))'; then old="$$old $$python=$$version"; continue; fi; \
  if ! "$$python" -c 'import venv, ensurepip' 2>/dev/null; then bare="$$bare $$version"; continue; fi; \
  command -v "$$python"; exit 0; \
done; \
for version in $$bare; do \
  echo "Python $$version is here but its venv and ensurepip modules are not. On Debian and Ubuntu: apt-get install python$$version-venv" >&2; exit 1; \
done; \
echo "Python $(PYTHON_MINIMUM) or newer is needed and was not found (looked for:$(if $(PYTHON), $(PYTHON), python3.13 python3.12 python3.11 python3);" \
  "too old:$${old:- none})." >&2; \
echo "Install it (Debian 12 or Ubuntu 23.10 and newer: apt-get install python3 python3-venv) or name one: make PYTHON=/path/to/python3" >&2; exit 1
endef

# Fails with a message when git or Go is missing or Go is older than the Kubernetes build needs. Go is not asked for where the binaries may be there already:
# then hack.controlplane, which knows exactly, is left to judge.
define check_tools
if ! command -v git >/dev/null; then \
  echo "git is needed and was not found. On Debian and Ubuntu: apt-get install git" >&2; exit 1; \
fi; \
if [ -n "$${KUBEBUILDER_ASSETS:-}$${CAPOX_BIN_KUBE_APISERVER:-}" ] || [ -d "$${XDG_CACHE_HOME:-$$HOME/.cache}/capox" ]; then exit 0; fi; \
found=$$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null || true); found=$${found#go}; \
if [ -z "$$found" ]; then \
  echo "Go $(GO_MINIMUM) or newer is needed to build the real control plane and was not found. Install it from https://go.dev/doc/install and put its bin folder on PATH." >&2; exit 1; \
elif [ "$$(printf '%s\n' $(GO_MINIMUM) "$$found" | sort -V | head -1)" != $(GO_MINIMUM) ]; then \
  echo "Go $(GO_MINIMUM) or newer is needed to build the real control plane; go on PATH is $$found. Install a newer one from https://go.dev/doc/install" >&2; exit 1; \
fi
endef

##@ Start here

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-zA-Z0-9_-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(STAMP) ## A real control plane, a simulated rack, and a cluster on them whose Nodes get Ready (GUESTS=none: no machines; KUBECONFIG=...)
	@$(BIN)/python -m hack.demo up --guests $(GUESTS)

.PHONY: demo-down
demo-down: $(STAMP) ## Stop what make demo has left running, and leave nothing
	@$(BIN)/python -m hack.demo down

.PHONY: test
test: tools $(STAMP) lint type verify test-unit test-contract test-sim test-integration ## Run everything that judges a change, fast checks first
	@printf '\nAll stages passed.\n'

.PHONY: rack
rack: $(STAMP) ## Run a simulated rack until Ctrl-C (RACK_LISTEN, RACK_CONFIG)
	@$(BIN)/capox rack --listen $(RACK_LISTEN) $(if $(RACK_CONFIG),--config $(RACK_CONFIG))

##@ Environment

.PHONY: tools
tools: ## Say what this machine lacks for make test
	@$(check_tools)

.PHONY: install
install: $(STAMP) ## Make the virtual environment .venv from requirements/dev.lock

# A changed lock or pyproject.toml installs again; what is there already is kept.
$(STAMP): requirements/dev.lock pyproject.toml
	@if ! [ -x $(BIN)/python ]; then python=$$($(choose_python)); echo "Making $(VENV) with $$python"; "$$python" -m venv $(VENV); fi
	$(call stage,install,$(install_packages))
	@touch $@

# One line a package is the progress; pip keeps what it downloads in the user's cache.
define install_packages
$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --require-hashes -r requirements/dev.lock \
  | sed -un -e 's/^Collecting \([^ ]*\).*/    \1/p' -e 's/^Installing collected packages.*/    installing what was collected/p' \
  && $(BIN)/python -m pip install --disable-pip-version-check --quiet --no-build-isolation --no-deps -e .
endef

.PHONY: lock
lock: ## Choose new versions: write requirements/*.lock from pyproject.toml (uv is fetched when missing)
	@if command -v uv >/dev/null; then uv=uv; else \
	  uv=build/uv/bin/uv; \
	  if ! [ -x "$$uv" ]; then python=$$($(choose_python)); "$$python" -m venv build/uv; build/uv/bin/pip install --disable-pip-version-check --quiet uv; fi; \
	fi; \
	compile="$$uv pip compile --universal --python-version $(PYTHON_MINIMUM) --generate-hashes --no-emit-index-url --no-header --quiet pyproject.toml"; \
	$$compile --extra rack --extra dev -o requirements/dev.lock; \
	$$compile --constraint requirements/dev.lock -o requirements/runtime.lock; \
	git --no-pager diff --stat -- requirements

.PHONY: clean
clean: ## Remove what was built here; the user's cache (control plane binaries) stays
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis tests/contract/sdk/target *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

##@ Code

.PHONY: fmt
fmt: $(STAMP) ## Format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

.PHONY: lint
lint: $(STAMP) ## Check style, format, who imports whom, docstrings
	$(call stage,lint,\
	  $(BIN)/ruff check && $(BIN)/ruff format --check && \
	  $(BIN)/lint-imports --no-logo && \
	  $(BIN)/interrogate --quiet capox hack tests)

.PHONY: type
type: $(STAMP) ## Check types with mypy strict
	$(call stage,type,$(BIN)/mypy)

.PHONY: generate
generate: $(STAMP) ## Write the generated files again: crds/, docs/reference/, and what is made of config/ccm
	@$(BIN)/python -m capox.api.crdgen
	@$(BIN)/python -m hack.ccm

.PHONY: verify
verify: $(STAMP) ## Fail when a generated file differs from its source or a changelog fragment cannot be read
	$(call stage,verify,$(BIN)/python -m capox.api.crdgen --check && $(BIN)/python -m hack.ccm --check && $(read_fragments))

# towncrier talks about its work on standard error; that is of interest only when it fails.
read_fragments = { said=$$($(BIN)/towncrier build --draft --version next 2>&1) || { echo "$$said"; exit 1; }; }

##@ Tests

.PHONY: test-unit
test-unit: $(STAMP) ## Pure logic and the rules of the house, milliseconds a test
	$(call stage,test-unit,$(call pytest,unit))

.PHONY: test-contract
test-contract: $(STAMP) ## Client and rack against Oxide's OpenAPI document, CRDs against structural rules
	$(call stage,test-contract,$(call pytest,contract))

.PHONY: test-sim
test-sim: $(STAMP) ## Reconcilers, rack and a small Kubernetes on virtual time
	$(if $(call has_tests,sim),$(call stage,test-sim,$(call pytest,sim)))

.PHONY: test-integration
test-integration: $(STAMP) ## A real etcd, kube-apiserver and Cluster API; built on first use (a quarter of an hour on 2 idle cores)
	$(call stage,controlplane,$(BIN)/python -m hack.controlplane build)
	$(call stage,test-integration,$(call pytest,integration))

.PHONY: e2e
e2e: $(STAMP) ## Machines that boot inside the rack: needs Docker, or root to install and start one; node images where they have been made
	$(call stage,docker,$(BIN)/python -m hack.docker up)
	$(call stage,e2e,$(BIN)/python -m pytest tests/e2e -m 'not full' -p randomly --randomly-seed=$(SEED) $(ARGS))

.PHONY: e2e-full
e2e-full: $(STAMP) ## As e2e, and what takes long: machines, sleds and user data that fail (ARGS='-m full' for these alone, SITUATIONS=folder)
	$(call stage,docker,$(BIN)/python -m hack.docker up)
	$(call stage,e2e-full,E2E_SITUATIONS='$(abspath $(SITUATIONS))' $(BIN)/python -m pytest tests/e2e -p randomly --randomly-seed=$(SEED) $(ARGS))

.PHONY: test-sdk
test-sdk: $(STAMP) ## Oxide's Rust SDK lives a full life against the rack (needs cargo)
	$(call stage,test-sdk,$(BIN)/python -m tests.contract.sdk)

.PHONY: bench
bench: $(STAMP) ## Whole fleets, the CCM, a large rack: calls, memory, time as ratios; fails when a limit is missed (REPORT=page.md, CCM_REPORT=, FLEET='--sizes 10', CCM=)
	$(call stage,bench of the rack,$(BIN)/python -m pytest tests/bench -p no:randomly -s $(ARGS))
	$(call stage,bench of the CCM,$(BIN)/python -m tests.bench.ccm $(if $(CCM_REPORT),--report $(CCM_REPORT)) $(CCM))
	$(call stage,bench of fleets,$(BIN)/python -m tests.bench.fleet $(if $(REPORT),--report $(REPORT)) $(FLEET))

##@ What users install

.PHONY: image
image: $(STAMP) ## Make the manager's container image in build/ (BASE=base.tar or BASE_DIR=rootfs, TAG); no Docker, no registry
	@$(BIN)/python -m hack.image $(if $(BASE),--base $(BASE)) $(if $(BASE_DIR),--base-dir $(BASE_DIR)) $(if $(TAG),--tag $(TAG)) \
	  --output build/cluster-api-provider-oxide-controller.tar

.PHONY: node-image
node-image: $(STAMP) ## Make the images that machines of the rack boot, with Docker; quick when nothing has changed (ARGS='--second none', --help)
	@$(BIN)/python -m hack.nodeimage build $(ARGS)

.PHONY: release
release: $(STAMP) ## Put together what clusterctl installs, in build/release (VERSION=v0.1.0, IMAGE=registry/name:tag)
	@$(BIN)/python -m hack.release --output build/release $(if $(VERSION),--version $(VERSION)) $(if $(IMAGE),--image $(IMAGE))

##@ Control plane for people

.PHONY: controlplane-up
controlplane-up: $(STAMP) ## Start a real control plane on loopback and say how to reach it
	@$(BIN)/python -m hack.controlplane up

.PHONY: controlplane-down
controlplane-down: $(STAMP) ## Stop it
	@$(BIN)/python -m hack.controlplane down
