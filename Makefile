# Two commands for a new machine with Python 3.11+, git and make: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# One process more than there are cores: tests wait for servers and programs.
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')
PYTEST := $(BIN)/pytest --numprocesses=$(WORKERS) --dist=worksteal

LOCK   := uv pip compile pyproject.toml --generate-hashes --universal --python-version 3.11 \
  --no-emit-index-url --no-header --quiet

# What Python and pytest compile is kept, so that no process does it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test slow check lint types imports pages speech bench format lock generate clean help

help: ## show these lines
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/'

demo: $(READY) ## judge sample memories and documents with a real model
	@$(BIN)/judgekit demo

test: check ## all checks, and all tests but the slow ones; FILES=... runs those that guard these files
	$(PYTEST) --hypothesis-profile=fast -m 'not slow' $(if $(FILES),$$($(BIN)/python -m tests.guards $(FILES)))

slow: $(READY) ## tests that start many processes, wait for limits or simulate, and all examples of properties
	$(PYTEST) -m 'slow or hypothesis'

check: $(READY) ## lint, format, types, imports, docs
	@$(MAKE) --no-print-directory --jobs lint types imports pages speech

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

imports:
	$(BIN)/lint-imports --no-logo

pages:
	$(BIN)/python -m tests.docs

speech:
	$(BIN)/python -m tests.speech

bench: $(READY) ## speed as ratios, quality as tables
	$(BIN)/python -m compileall -q judgekit
	$(BIN)/python bench/hook.py --write docs/figures/hook.md
	$(BIN)/python bench/gate.py --write docs/figures/gate.md
	$(BIN)/python bench/engine.py --write docs/figures/engine.md
	$(BIN)/python bench/rows.py $${JUDGEKIT_PEERS:+--peers "$$JUDGEKIT_PEERS" --write docs/figures/rows.md}
	@if $(BIN)/python -c 'import ray' 2>/dev/null; then $(BIN)/python bench/ray.py --write docs/figures/scale.md; else echo "rows on Ray are not measured: run make $(VENV)/.scale"; fi
	@if test -z "$$JUDGEKIT_TEST_DATA"; then echo "quality is not measured: JUDGEKIT_TEST_DATA names no data"; else set -ex; \
	  $(BIN)/python bench/retrieval.py --data "$$JUDGEKIT_TEST_DATA" --write docs/figures/retrieval.md; \
	  $(BIN)/python bench/notes.py --data "$$JUDGEKIT_TEST_DATA" --write docs/figures/notes.md; \
	  $(BIN)/python bench/confidence.py --data "$$JUDGEKIT_TEST_DATA/retrieval/locomo_obs" --talk "$$JUDGEKIT_TEST_DATA/retrieval/locomo_turns" --notes "$$JUDGEKIT_TEST_DATA/notes" --write docs/figures/confidence.md; \
	  $(BIN)/python bench/prompts.py --data "$$JUDGEKIT_TEST_DATA/retrieval/locomo_obs" --write docs/figures/prompts.md; \
	  $(BIN)/python bench/judging.py --data "$$JUDGEKIT_TEST_DATA" --write docs/figures/judging.md; \
	  $(BIN)/python bench/report.py --data "$$JUDGEKIT_TEST_DATA" --write docs/figures/report.md; \
	  $(BIN)/python bench/until.py --data "$$JUDGEKIT_TEST_DATA" --write docs/figures/until.md; \
	  $(BIN)/python bench/panels.py --data "$$JUDGEKIT_TEST_DATA" $${JUDGEKIT_LOCAL_MODEL:+--review} --write docs/figures/panels.md; fi
	@if test -z "$$JUDGEKIT_LOCAL_MODEL"; then echo "rubrics and attacks are not tried: JUDGEKIT_LOCAL_MODEL names no model"; else set -ex; \
	  $(BIN)/python bench/rubrics.py --write docs/figures/rubrics.md; \
	  $(BIN)/python bench/injection.py $${JUDGEKIT_TEST_DATA:+--data "$$JUDGEKIT_TEST_DATA"} --write docs/figures/injection.md; fi

format: $(READY) ## apply the safe fixes and the formatter
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: $(READY) ## compile bundled YAML files and the defaults; renew docs/cli.md
	$(BIN)/python -m judgekit.retrieval.profiles
	$(BIN)/python -m judgekit.config.yaml_text
	$(BIN)/python -m tests.docs --write

lock: ## resolve the dependencies anew (needs uv)
	$(LOCK) --extra local --extra data --group dev --upgrade -o requirements.lock
	$(LOCK) --extra ray --extra postgres --constraint requirements.lock -o requirements-scale.lock

$(VENV)/.scale: $(READY) requirements-scale.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --compile -r requirements-scale.lock
	@touch $@

clean: ## remove what make built
	rm -rf $(VENV) build dist

# Bytecode is compiled here, once: without it litellm takes twice as long to import, and the hook half again.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "judgekit needs Python 3.11 or newer; say which with: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --compile -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q judgekit
	@touch $@
