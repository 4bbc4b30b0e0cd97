# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test native test-matrix lint bench docs page screenshots clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -e . --group dev
	touch $@

demo: $(STAMP)
	@echo '$$ torchsan fix examples/residual_net.py'
	@$(BIN)/torchsan fix --color always examples/residual_net.py || test $$? -eq 1

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint native
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Where a C++ compiler is, tests of what is written run on both sensors; where none is, on the one in Python.
native: $(STAMP)
	@$(BIN)/torchsan native build || echo 'tests of the native part are left out'

# The suite on every Python that is here (`TORCH="2.9.1 2.13.0"` for several versions of torch); prints a table.
TORCH ?= 2.13.0
test-matrix:
	$(PYTHON) tests/matrix.py --torch $(TORCH)

# The page of the HTML report, from its sources in web/.
page:
	$(PYTHON) web/build.py

# The pictures of that page, made by its test in a real Chromium.
screenshots: $(STAMP)
	mkdir -p docs/images
	$(BIN)/python docs/_build/picture.py
	TORCHSAN_SCREENSHOTS=$(CURDIR)/docs/images $(BIN)/python -m pytest tests/report/test_page.py -k real_run

# The site, in site/; the gallery's programs are run while it is built, and any warning is an error.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(STAMP)
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/verify_time.py

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
