# make run    set up, then measure attention on this machine and print the claim
# make test   set up, then run the tests
# make check  what must pass before a commit: format, lint, types, layers, tests
# make coverage  the tests once more, watching that they reach 95% of evidence and judge; half as long again
# make release  what must pass before a release: all that, what compiles for more GPUs, and no text rests on a kernel that has changed

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check -q install -c constraints.txt
# One more than there are cores: many tests wait for processes, or for nothing.
JOBS   ?= $(shell expr $$(nproc) + 1)
# The oldest Triton that the kernels support, for the compile tests alone: in a folder of its own, beside the pinned one.
OLDEST_TRITON := 3.6.0

.PHONY: run test check release format lint coverage clean

run: $(VENV)/.run-ready
	$(BIN)/groundspeed run attention --preset quick
	@echo "groundspeed itself is in $(BIN): . $(BIN)/activate"

# After this set-up a missing Triton is a failure; without the variable its tests skip.
test coverage: export GROUNDSPEED_REQUIRE_OLDEST_TRITON := 1

test: $(VENV)/.test-ready
	$(BIN)/pytest -n $(JOBS) --dist worksteal

check: $(VENV)/.test-ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(MAKE) test

release: check coverage
	$(BIN)/pytest -n $(JOBS) -m release
	$(BIN)/groundspeed claims check --release README.md docs/*.md docs/kernels/*.md

format: $(VENV)/.test-ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

coverage: $(VENV)/.test-ready
	$(BIN)/pytest -n $(JOBS) --dist worksteal --cov=groundspeed.evidence --cov=groundspeed.judge --cov-fail-under=95 --cov-report=term

clean:
	rm -rf $(VENV)

$(VENV)/.run-ready: pyproject.toml constraints.txt
	@echo "setting up $(VENV) (a few minutes the first time, most of them PyTorch)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[torch,report]'
	@touch $@

$(VENV)/.test-ready: $(VENV)/.run-ready $(VENV)/triton-$(OLDEST_TRITON)/.ready $(VENV)/.browser-tried
	$(PIP) -e '.[dev]'
	@touch $@

# Without the constraints, which name the pinned one.
$(VENV)/triton-$(OLDEST_TRITON)/.ready: | $(VENV)/.run-ready
	$(BIN)/pip --disable-pip-version-check -q install --no-deps --upgrade --target $(@D) triton==$(OLDEST_TRITON)
	@touch $@

# A browser for the tests of the pages, where apt has one and we may install it; elsewhere these tests skip, and say so.
# With GROUNDSPEED_REQUIRE_BROWSER=1, as in CI, a missing one is a failure.
APT := $(if $(filter 0,$(shell id -u)),,sudo -n )apt-get
$(VENV)/.browser-tried: | $(VENV)/.run-ready
	@command -v chromium || command -v chromium-browser || command -v google-chrome || \
		{ $(APT) -qq update && $(APT) -qq -y install --no-install-recommends chromium; } >/dev/null 2>&1 || \
		echo "no browser could be installed: the tests of the pages will be skipped"
	@touch $@
