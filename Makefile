# Every target sets up what it needs: a virtual environment in .venv, pinned by constraints.txt.
# Needs Python 3.11 or later with venv, make, and a package index.

TORCH ?= torch==2.13.0
PYTHON ?= $(firstword $(shell command -v python3.11 2>/dev/null) python3)
ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet
# One stamp per TORCH= value, so that asking for another build installs it.
READY := .venv/.ready-$(firstword $(shell printf '%s' '$(TORCH)' | cksum))
PEERS := .venv/.peers
MUTATE := .venv/.mutate
AGENTS := .venv/agents
CODE := packages tests benchmarks tools examples conftest.py
PACKAGES := $(wildcard packages/*/pyproject.toml)
# The numbers of the house that hold; the others are on their way (make house).
HOLDS := top_level_names product_commands single_importer_same_folder duplicate_public_class_names_in_product \
  room_cycles product_imports_of_methods_or_testbed glossary_violations test_only_modules_in_wheels \
  comment_share
# Temporary files in memory: there nobody waits for a disk to sync.
SCRATCH := $(BIN)/python tools/scratch.py

.PHONY: help setup demo test test-agents test-gpu mutate check format lint types imports surface docs-run notebooks docs wheel bench reference house clean
.DEFAULT_GOAL := help

help: ## This list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14
	@echo
	@echo "TORCH='torch==2.12.0'  another PyTorch     PYTHON=python3.12  another interpreter"
	@echo "ARGS='-k tree -x'      arguments of pytest  QUICK=1            shorter benchmarks"
	@echo "CHANGED=1              tests of what was changed, beside main or BASE=a commit"

setup: $(READY) ## The virtual environment, .venv

$(READY): pyproject.toml $(PACKAGES) constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "make: Refork needs Python 3.11 or later; '$(PYTHON)' is not. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "make: '$(PYTHON)' has no venv module. On Debian: apt install python3-venv" >&2; exit 2; }
	@rm -f .venv/.ready-*
	@test -x $(BIN)/python || { echo "setup: a virtual environment in .venv"; $(PYTHON) -m venv .venv; }
	@$(PIP) --constraint constraints.txt pip
	@echo "setup: $(TORCH) (the large one)"
	@$(PIP) --constraint constraints.txt $(TORCH)
	@$(BIN)/python -c 'from importlib.metadata import version; print("torch==" + version("torch"))' > .venv/torch.txt
	@echo "setup: everything else"
	@$(PIP) --constraint constraints.txt --constraint .venv/torch.txt --group dev
	@$(PIP) --constraint constraints.txt --constraint .venv/torch.txt --no-build-isolation \
	  --editable 'packages/refork[export,serve,trace,inspect,postgres,grammar,report,proxy]' \
	  --editable 'packages/refork-worlds[worlds,minigrid,mcp,web]' \
	  --editable 'packages/refork-testbed[critics]' \
	  --editable 'packages/refork-methods[harness,languages,export,mcp]'
	@touch $@

demo: $(READY) ## The whole story in under three minutes: runs/demo
	@$(BIN)/refork demo $(ARGS)

test: $(READY) ## All tests, with the coverage gate (CHANGED=1: those that your changes call for)
ifdef CHANGED
	@tests=$$($(BIN)/python tools/changed_tests.py $(if $(BASE),--base $(BASE))) || exit 2; \
	  test -n "$$tests" || { echo "test: nothing was changed"; exit 0; }; \
	  echo "test:" $$tests; OMP_NUM_THREADS=1 $(SCRATCH) $(BIN)/python -m pytest --no-cov -n 2 --dist loadfile $(ARGS) $$tests
else
	@rm -f .coverage .coverage.*
	@OMP_NUM_THREADS=1 COV_LINES=1 $(SCRATCH) $(BIN)/python -m pytest -n 2 --dist loadfile \
	  --durations=20 --durations-min=3 $(ARGS)
	@$(BIN)/coverage combine --quiet && $(BIN)/coverage report --skip-covered
endif

$(AGENTS)/.ready: $(READY)
	@echo "test-agents: deepagents and the newest of the LangChain family, in an environment of their own"
	@$(PYTHON) -m venv --without-pip $(AGENTS)
	@$(BIN)/python -c 'import pathlib, sysconfig; own = next(pathlib.Path("$(AGENTS)").glob("lib/*/site-packages")); \
	  (own / "zz_setup.pth").write_text("import site; site.addsitedir(%r)\n" % sysconfig.get_path("purelib"))'
	@PIP_PYTHON=$(AGENTS)/bin/python $(PIP) --group agents
	@touch $@

test-agents: $(AGENTS)/.ready ## The tests of rules in agent frameworks, with deepagents and the newest packages
	@OMP_NUM_THREADS=1 $(AGENTS)/bin/python tools/scratch.py $(AGENTS)/bin/python -m pytest --no-cov -p no:xdist -rs $(ARGS) \
	  packages/refork-methods/tests/rot packages/refork-methods/tests/pin/frameworks

$(MUTATE): $(READY)
	@echo "mutate: mutmut"
	@$(PIP) --constraint constraints.txt --constraint .venv/torch.txt --group mutate
	@touch $@

test-gpu: $(READY) ## Exactness, batches, speed and memory on a CUDA device, eight minutes: runs/gpu.json
	@$(BIN)/python benchmarks/gpu.py $(ARGS)

mutate: $(MUTATE) ## Break the numeric files line by line; what no test notices must be listed (ARGS=stats: less)
	@OMP_NUM_THREADS=1 $(SCRATCH) $(BIN)/python tools/mutate.py $(ARGS)

check: format lint types imports surface wheel docs docs-run notebooks ## Style, types, contracts, wheel, docs that run

format: $(READY)
	@echo "check: format" && $(BIN)/ruff format --check $(CODE)

lint: $(READY)
	@echo "check: lint" && $(BIN)/ruff check --output-format concise $(CODE)
	@echo "check: house" && $(BIN)/python tools/house.py --check $(HOLDS)

types: $(READY)
	@echo "check: types" && $(BIN)/mypy

imports: $(READY)
	@echo "check: import contracts" && $(BIN)/lint-imports --no-logo

surface: $(READY)
	@echo "check: public surface" && $(BIN)/python -m pytest --no-cov tests/test_public_surface.py

wheel: $(READY)
	@echo "check: wheel in an empty environment" && $(BIN)/python tools/check_wheel.py

docs: $(READY) ## The documentation site, into site/
	@echo "check: docs build" && $(BIN)/python tools/cli_reference.py --check && \
	  $(BIN)/python tools/results.py --check && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-run: $(READY)
	@echo "check: docs run" && OMP_NUM_THREADS=1 $(SCRATCH) $(BIN)/python tools/run_docs.py $(ARGS)

notebooks: $(READY)
	@echo "check: notebooks" && OMP_NUM_THREADS=1 $(SCRATCH) $(BIN)/python tools/run_notebooks.py

reference: $(READY) ## Rewrite docs/reference/cli.md from the commands
	@$(BIN)/python tools/cli_reference.py

$(PEERS): $(READY)
	@echo "bench: the packages that benchmarks measure beside"
	@$(PIP) --constraint constraints.txt --constraint .venv/torch.txt --group peers
	@$(PIP) --constraint constraints.txt --no-deps lm-polygraph==0.7.0
	@touch $@

bench: $(PEERS) ## Run the benchmarks and rewrite docs/results.md (QUICK=1: about a minute each)
	@$(BIN)/python tools/results.py --run $(if $(QUICK),--quick) $(ARGS)
	@$(BIN)/python tools/page_pictures.py --bars

house: $(READY) ## How large the packages are, and where they break the design's rules (ARGS='--list KEY')
	@$(BIN)/python tools/house.py $(ARGS)

clean: ## Remove all that can be made again
	rm -rf .venv site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
	find $(CODE) -name __pycache__ -prune -exec rm -rf {} +
