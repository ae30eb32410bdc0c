# `make` alone lists the targets.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GOLANGCI ?= CGO_ENABLED=0 $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

SECONDS  ?= 60
DB       ?= sqlite
SEED     ?=
STORM    ?=
SEEDS    ?= 2000
WITHOUT  ?=
FUZZTIME ?= 30s

# SQLite in Go is a machine translation; under the race detector it would be ten times as slow and find nothing.
RACELESS := -gcflags='modernc.org/...=-race=false'

# The packages whose tests take longest begin first, so that no core is idle in the end. Memory is cheaper than collecting it (GOGC):
# a part of store/sqlite took 111 s of CPU instead of 174.
LONGEST := ./store/postgres ./internal/proof/processes ./internal/cli ./internal/bench/programs ./internal/proof/crashes ./internal/proof/storm ./app ./store/sqlite ./runner/process

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the static binary ./pawl (the first time it takes minutes: it compiles SQLite)
	@echo "building ./pawl: the first time one to two minutes on two idle cores, most of it SQLite; then seconds"
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o pawl ./cmd/pawl

.PHONY: image
image: build ## Build deploy/Containerfile with podman on a base of busybox, and try it (needs podman, runc and busybox-static)
	./deploy/try.sh ./pawl

.PHONY: deps
deps: ## Look for what the tests need; as root, install what is missing
	@./.ci/deps

.PHONY: test
test: deps ## Run every test under the race detector; a missing server is a failure
	PAWL_TEST_REQUIRE=1 CGO_ENABLED=1 GOGC=400 $(GO) test -race $(RACELESS) -timeout 25m $(LONGEST) ./...

.PHONY: lint
lint: ## Run golangci-lint at its pinned version (the first run builds it: two minutes)
	$(GOLANGCI) run

.PHONY: fmt
fmt: ## Format the code (gofumpt)
	$(GOLANGCI) fmt

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (30s)
	@set -e; for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

.PHONY: chaos
chaos: deps ## Raise a storm of faults for SECONDS (60) over processes on DB (sqlite, postgres); SEED repeats load and faults
	$(GO) run ./internal/proof/storm -db '$(DB)' -seconds $(SECONDS) $(if $(SEED),-seed $(SEED)) $(STORM)

.PHONY: crashes
crashes: deps ## Let processes die at each named point and at random moments for SECONDS; DB and SEED as for chaos
	$(GO) run ./internal/proof/crashes -db '$(DB)' -seconds $(SECONDS) $(if $(SEED),-seed $(SEED))

# How Pawl is without a guard stands in NAME.mutants, beside NAME.go. CONTRIBUTING.md says how one is added.
.PHONY: chaos-mutants
chaos-mutants: deps ## Go without one guard after the other; somebody must notice (about ten minutes)
	CGO_ENABLED=0 $(GO) run ./internal/proof/mutants

SIMBUILD := $(or $(TMPDIR),/tmp)/pawl-sim

.PHONY: sim
sim: ## Live SEEDS (2000) simulated worlds in virtual time; SEED replays one, and tells all that happens in it; WITHOUT a guard it must notice
	@CGO_ENABLED=0 $(GO) test -c -tags exact -overlay "$$($(GO) run ./internal/proof/sim/overlay $(SIMBUILD) $(WITHOUT))" -o $(SIMBUILD)/sim.test ./internal/proof/sim
	@PAWL_WITHOUT='$(WITHOUT)' $(if $(SEED),GOMAXPROCS=1 GOGC=off $(SIMBUILD)/sim.test -test.v -test.run '^TestSeed$$' -seed $(SEED),$(SIMBUILD)/sim.test -test.timeout 0 -test.run '^(TestSeeds|TestReplay)$$' -seeds $(SEEDS))

.PHONY: bench
bench: build ## Measure throughput, latency, idle cost and programs with this build
	./pawl bench tasks
	./pawl bench latency
	./pawl bench idle
	./pawl bench local

.PHONY: bench-paper
bench-paper: deps build ## Run 10,000 programs under a limit of 50, on both databases, also with outages, and what other ways cost (within 15 minutes); OUT gets the runs as JSON, SVG a drawing
	$(GO) run ./internal/proof/paper -pawl ./pawl $(if $(OUT),-out '$(OUT)') $(if $(SVG),-svg '$(SVG)')
