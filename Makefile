PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Compiled files are kept, also where the environment says otherwise: pytest rewrites the asserts of 400 files in each of its processes.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

.PHONY: demo test test-slow test-page lint install clean docs wheel test-wheel

demo: install
	$(BIN)/vauban demo

test: install
	$(PYTEST) -n 3 --dist worksteal

# Kernels for GPUs are tried with Triton's interpreter. It is kept apart: torch for CPUs comes without Triton, torch for GPUs with its own.
test-slow: install $(VENV)/triton
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[robotics]'
	$(PYTEST) -n 3 --dist worksteal -m slow
	$(PYTEST) -n 3 --dist worksteal --hypothesis-profile=thorough tests/laws tests/bounds
	TRITON_FOLDER=$(VENV)/triton $(PYTEST) tests/rl/test_item_kernels.py tests/engine/test_fused_kernels.py

# The report page in a real browser: Chromium as the system has it, driven by Playwright. Skipped with a word where there is none.
test-page: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[page]'
	$(PYTEST) -n 0 -rs -m 'slow or not slow' tests/page

$(VENV)/triton: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $@ triton==3.9.0
	touch $@

lint: install
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

# The site goes to build/site; any warning, such as a link to a page that is not there, fails.
docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "build/site/index.html; with its search: $(PYTHON) -m http.server -b 127.0.0.1 -d build/site"

$(VENV)/docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

# dist/ gets the wheel and the source distribution.
wheel: install
	rm -rf dist && $(BIN)/python -m build --outdir dist .

# Both are built, installed in empty environments without torch, and tried there.
test-wheel: install
	$(PYTEST) -n 0 -m slow tests/e2e/test_wheel.py

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,report,images,cluster,onnxruntime,openvino,rl,serve,test]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
