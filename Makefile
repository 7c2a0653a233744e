PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow lint install clean

demo: install
	$(BIN)/vauban demo

test: install
	$(BIN)/python -m pytest -n 2

test-slow: install
	$(BIN)/python -m pytest -n 2 -m slow || [ $$? -eq 5 ]  # 5: there are none yet

lint: install
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[report,images,cluster,rl,test]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
