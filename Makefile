# dupip finds duplicate pod IPs by looking at packets. `make` lists the targets.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: check-release fuzz release verify-release publish help build image demo run unit quick test test-vm bench bench-since scale scenarios compare search soak soak-audit vulncheck manifests schema generate lint lint-c need-go need-root

GO := $(shell tests/find-go.sh)
ifneq ($(GO),)
# The tests call go themselves.
export PATH := $(dir $(GO)):$(PATH)
endif
# Under sudo: caches of root's own, so that the user's stay the user's.
ifneq ($(SUDO_USER),)
export HOME := $(shell getent passwd 0 | cut -d: -f6)
endif

# Stamping the revision fails where git does not trust the owner of the checkout.
BUILDVCS := $(shell git rev-parse HEAD >/dev/null 2>&1 && git status >/dev/null 2>&1 && echo auto || echo false)
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# The image's name; VERSION is what it says of itself, by default what git says.
IMAGE ?= localhost/dupip:dev
# Where a release is.
RELEASE ?= bin/release
# How many nodes the clusters of make scale have.
SCALE ?= 50,500
# What make unit tests: no root, no program that is not Go's, no socket that waits for another.
UNIT := ./cmd/... ./detector/... ./document/... ./internal/... ./gossip/keeper ./gossip/lease ./gossip/roster ./gossip/wire \
	./agent/config $(addsuffix /...,$(wildcard ./agent/capture ./agent/core ./agent/observe ./agent/exchange ./agent/probe ./agent/report))
# Runs parts of the tests, from the module of the tests.
CI_PROGRAM = mkdir -p bin && $(GO) build -C tests -o ../bin/ci ./ci && \
	if [ -n "$(SUDO_UID)" ]; then chown "$(SUDO_UID):$(SUDO_GID)" bin bin/ci; fi && cd tests && exec ../bin/ci
# Tests that take minutes run, too; go test alone leaves them out.
export DUPIP_TEST_SLOW := 1
# One way to compile, so that each package is compiled once: for tests, linters and programs.
export GOFLAGS += -trimpath
export CGO_ENABLED := 0
# Parts of the tests, see tests/ci/parts.go.
PARTS ?=

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | \
		while IFS='	' read -r target text; do printf '  make %-12s %s\n' "$$target" "$$text"; done

build: need-go ## static bin/dupip and bin/kubectl-dupip
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=$(BUILDVCS) -ldflags '-s -w' -o bin/ ./cmd/dupip ./cmd/kubectl-dupip
	@if [ -n "$(SUDO_UID)" ]; then chown "$(SUDO_UID):$(SUDO_GID)" bin bin/dupip bin/kubectl-dupip; fi

image: need-go ## bin/dupip-image.tar, for amd64 and arm64; IMAGE=registry.example/dupip:1.2 VERSION=1.2
	@mkdir -p bin
	@$(GO) run -C tests ./image/build -name '$(IMAGE)' -version '$(VERSION)' -o bin/dupip-image.tar
	@if [ -n "$(SUDO_UID)" ]; then chown "$(SUDO_UID):$(SUDO_GID)" bin bin/dupip-image.tar; fi

release: need-go ## bin/release: all that a release has, and signed; VERSION=0.2.0 KEY=cosign.key
	@$(GO) run -C tests ./release make -version '$(VERSION)' -key '$(KEY)' -o '$(RELEASE)'
	@ls -l '$(RELEASE)'

verify-release: need-go ## whether a release is complete and as it was signed; VERSION=0.2.0 PUB=cosign.pub RELEASE=folder
	@tests/install.sh release
	@$(GO) run -C tests ./release verify -version '$(VERSION)' -key '$(PUB)' -o '$(RELEASE)'

publish: need-go ## push image and chart of a release and sign them there; REGISTRY=ghcr.io/dupip, or a dry run; VERSION=0.2.0 KEY=cosign.key
	@tests/install.sh release
	@$(GO) run -C tests ./release publish -version '$(VERSION)' -key '$(KEY)' -registry '$(REGISTRY)' -o '$(RELEASE)'

demo: need-root build ## (root) three duplicates in a small cluster of netns, found
	@$(GO) build -C tests -o ../bin/demo ./demo
	@DUPIP_TEST_BIN=bin/dupip bin/demo

run: need-root build ## (root) an agent on this machine; FLAGS="--min-overlap 2s" adds flags
	bin/dupip agent $(FLAGS)

unit: need-go ## in 30 s: tests of detector, cmd and the pure parts of agent and gossip
	@$(GO) test $(UNIT)

quick: need-root need-go ## (root) in 5 minutes, before a commit: linters, all packages, a few scenarios
	@$(CI_PROGRAM) -set quick

test: need-root need-go ## (root) all tests, as CI runs them; PARTS=e2e,cluster some, see tests/README.md
	@$(CI_PROGRAM) $(if $(PARTS),-only '$(PARTS)')

test-vm: need-go ## tests under Linux 5.10, which has no tcx, and 6.12, which has netkit; KERNEL=5.10, 6.1, 6.12 or newest all that are for one, in an emulated machine
	@tests/install.sh vm
	@cd tests/vm && DUPIP_TEST_KERNEL=$(KERNEL) $(GO) test -count=1 -timeout 70m

check-release: need-root need-go ## (root) before a release, after CI: what takes longer
	@$(CI_PROGRAM) -set release

bench: need-root build ## (root) what dupip costs, in 19 minutes; BENCH=ring one part, QUICK=1 roughly
	@tests/install.sh bench
	@$(GO) test -C tests -c -o ../bin/bench.test ./bench \
		-ldflags "-X github.com/dupip/dupip/tests/bench.revision=$$(git describe --always --dirty 2>/dev/null || echo unknown)"
	@cd tests/bench && DUPIP_TEST_BIN=../../bin/dupip ../../bin/bench.test -test.run TestBench -test.timeout 1h \
		-size $(if $(QUICK),quick,full) $(if $(BENCH),-only $(BENCH))

bench-since: need-root need-go ## (root) Go's benchmarks beside those of the last release; BASE=COMMIT another one, PACKAGES="./bpf ./detector"
	@tests/benchstat.sh '$(BASE)' $(PACKAGES)

scale: need-go ## clusters of 50 and 500 nodes in one process, in 15 minutes; SCALE=5000: 40 minutes, 16 GB
	@cd tests/scale && $(GO) test -count=1 -timeout 5h -v -run TestScale -sizes $(SCALE)

fuzz: need-go ## all fuzz targets, for DURATION=10m in total; by turns a few seconds each without it
	@tests/fuzz.sh $(DURATION)

scenarios: need-root build ## (root) the labelled scenarios as a table; ID=D5 plays one
	@tests/install.sh test
	@$(GO) test -C tests -c -o ../bin/scenarios.test ./scenarios
	@# Not by go test, which would have the last word.
	@cd tests/scenarios && DUPIP_TEST_BIN=../../bin/dupip ../../bin/scenarios.test -test.timeout 15m $(if $(ID),-id='$(ID)')

compare: need-root build ## (root) other detectors on the packets of the scenarios, in 14 minutes; ID=D5 one
	@tests/install.sh compare
	@$(GO) test -C tests -c -o ../bin/compare.test ./scenarios
	@cd tests/scenarios && DUPIP_TEST_BIN=../../bin/dupip ../../bin/compare.test -compare -test.run TestScenarios -test.timeout 30m $(if $(ID),-id='$(ID)')

search: need-go ## random lives of small clusters in virtual time, a line for each; DURATION=10m or SEEDS=400, SEED=7 is the first; PLAN=file plays one
	@cd tests/search && $(GO) test -count=1 -timeout 48h -v . -run '^$(if $(PLAN),TestPlan,TestSearch)$$' \
		-seed $(or $(SEED),0) $(if $(SEEDS),-seeds $(SEEDS),-duration $(or $(DURATION),10m)) $(if $(PLAN),-plan '$(abspath $(PLAN))')

soak: need-root need-go ## (root) a random life of pods on three nodes; DURATION=10m SEED=7 plays one again, LOSS=3 loses 3%
	@cd tests/soak && $(GO) test -count=1 -timeout 48h -v -run TestSoak . \
		-duration $(or $(DURATION),10m) -seed $(or $(SEED),0) -loss $(or $(LOSS),0)

soak-audit: need-root need-go ## (root) dupip audit against stores, kernel and runtime; DURATION=10m SEED=7
	@cd tests/soak/audit && $(GO) test -count=1 -timeout 48h -v -run TestSoakAudit . -duration $(or $(DURATION),10m) -seed $(or $(SEED),0)

vulncheck: need-go ## known vulnerabilities in what the program calls (govulncheck)
	@tests/vulncheck.sh

manifests: need-go ## render deploy/dupip.yaml from the chart
	@$(GO) run -C tests ./helm/manifests

schema: need-go ## deploy/api.schema.json from the Go types of all documents
	@$(GO) run -C tests ./schema/write

generate: need-go ## regenerate the BPF objects (clang-19, llvm-19)
	@tests/install.sh generate
	$(GO) generate ./...

lint: need-go ## golangci-lint; and clang-format on the C sources, if it is there, in CI and with sudo
	$(GO) run $(GOLANGCI) run ./...
	$(GO) run $(GOLANGCI) run --build-tags dupip_next ./gossip/...
	cd tests && $(GO) run $(GOLANGCI) run ./...
	@# The plugin is for any machine that kubectl runs on.
	GOOS=darwin $(GO) build -o /dev/null ./cmd/kubectl-dupip
	@if [ -n "$(CI)" ] || [ "$$(id -u)" -eq 0 ] || command -v clang-format-19 >/dev/null; then $(MAKE) lint-c; else \
		echo "make lint: the C sources were not checked, because the Debian package clang-format-19 is not installed"; fi

lint-c:
	@tests/install.sh lint
	clang-format-19 --dry-run -Werror $$(find bpf -name '*.[ch]')

need-go:
	@[ -n "$(GO)" ] || { echo "Go 1.21 or newer is needed and was not found: see https://go.dev/dl" >&2; exit 1; }

need-root:
	@[ "$$(id -u)" -eq 0 ] || { echo "this target makes network namespaces and loads BPF programs: run it with sudo" >&2; exit 1; }
