# Every target sets up what it needs in .venv; a second run finds it done.
# ARGS is passed on: make test ARGS="-k lattice"

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Waiting OpenMP threads sleep instead of spinning: much faster when the cores are shared.
export OMP_WAIT_POLICY ?= passive
export PIP_DISABLE_PIP_VERSION_CHECK := 1

INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
# The locks have the hashes of all files but torch's. They hold for Python 3.11; for others, versions without hashes.
HASHED := $(BIN)/python -m pip install --quiet --no-deps --require-hashes --no-build-isolation
IS_LOCKED = $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'
EDITABLE := --no-build-isolation --config-settings=build-dir=build/{wheel_tag} \
	--config-settings=cmake.define.FWCRF_CHECK_ISA=ON --editable
# Tests and benchmarks compare with them; the benchmarks also with the second list.
TESTED_PEERS := pydensecrf2 entmax
TIMED_PEERS := crfseg

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test browser check bench experiments bench-inference bench-joint docs clean reliability fuzz agree mutants sanitize snapshot triton integrations wheel-test test-lowest test-newest test-arm test-compilers lock

help: ## list the targets
	@awk -F ': .*## ' '/^[a-z-]+: .*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.package ## refine the segmentation of a photograph
	$(BIN)/python examples/refine_photograph.py $(ARGS)

test: $(VENV)/.package $(VENV)/.peers $(VENV)/.browser ## run the test suite
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal $(ARGS)

browser: $(VENV)/.package ## install a browser for the tests of the demo page, which are skipped without one
	$(BIN)/python tests/apps/demo/browsers.py --required || $(BIN)/python -m playwright install --with-deps chromium

check: $(VENV)/.check ## lint, formatting (Python and C++), types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run -Werror $(wildcard csrc/*/*pp tests/reliability/native/*pp)
	$(BIN)/pyright --pythonpath $(BIN)/python
	@# It asks the first python of the path where torch is.
	PATH=$(CURDIR)/$(BIN):$$PATH PYTHONPATH=src pyright --verifytypes fwcrf --ignoreexternal >build/verifytypes.log \
		|| { cat build/verifytypes.log; exit 1; }

bench: $(VENV)/.package $(VENV)/.bench ## time the library and its peers
	$(BIN)/fwcrf bench $(ARGS)

experiments: $(VENV)/.package ## do the paper's experiments again (hours; needs FWCRF_DATA)
	$(BIN)/fwcrf experiment all --output experiments-output $(ARGS)

# Both say how long each experiment took; what was measured before is not measured again.
bench-inference: $(VENV)/.package ## energies and accuracies over 32 images (ten minutes; needs FWCRF_DATA)
	$(BIN)/fwcrf experiment energy lambda potts-miou --images 32 --output experiments-output/inference $(ARGS)

bench-joint: $(VENV)/.package ## network and CRF trained together, one seed (half an hour; needs FWCRF_DATA)
	$(BIN)/fwcrf experiment joint --seeds 0 --output experiments-output/joint $(ARGS)

docs: $(VENV)/.docs ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
	$(BIN)/python docs/check_site.py site

reliability: $(VENV)/.package ## long runs: threads, memory, kills, bits
	$(BIN)/python tests/reliability/long_runs.py $(ARGS)

fuzz: $(VENV)/.package ## a million random cases, a part of them guided by coverage
	$(INSTALL) atheris || echo "atheris could not be installed; no case will be guided by coverage"
	$(BIN)/python tests/reliability/fuzz_all.py $(ARGS)
	PATH=$(CURDIR)/$(BIN):$$PATH PYTHON=$(BIN)/python tests/reliability/fuzz_native.sh build/fuzzer

agree: $(VENV)/.package $(VENV)/.peers ## five million cases of paths that must agree (days; continues where it was stopped)
	$(BIN)/python tests/reliability/agree.py $(ARGS)

mutants: $(VENV)/.package ## small errors in the code, each of which some test must find (ARGS=--all for all)
	$(BIN)/python tests/mutants.py $(ARGS)

# In a build of its own. Python itself is not instrumented, so the runtime of the sanitizer is loaded first; what
# Python never frees is no leak of ours, and the driver without Python looks for those.
SANITIZED := build/sanitize
ASAN_LIBRARIES = $(shell $(CXX) -print-file-name=libasan.so):$(shell $(CXX) -print-file-name=libubsan.so):$(shell $(CXX) -print-file-name=libstdc++.so)
sanitize: $(VENV)/.package ## the native core under address and undefined-behaviour sanitizers
	mkdir -p build
	$(BIN)/cmake -S . -B $(SANITIZED) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
		-DFWCRF_SANITIZE=address,undefined -DFWCRF_DRIVER=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		'-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1' >$(SANITIZED).log
	$(BIN)/cmake --build $(SANITIZED)
	PYTHON=$(BIN)/python PRELOAD=$(ASAN_LIBRARIES) tests/reliability/sanitize.sh $(SANITIZED) $(ARGS)

snapshot: $(VENV)/.package ## write tests/api_snapshot.txt anew
	$(BIN)/python tests/api_snapshot.py

triton: $(VENV)/.package ## tests of the Triton kernels, in the interpreter and by compilation (installs 700 MB)
	if $(IS_LOCKED); then $(HASHED) --requirement locks/triton.txt; else $(INSTALL) triton; fi
	$(BIN)/python -m pytest tests/kernels/test_lattice_triton.py tests/kernels/test_triton_kernels.py $(ARGS)

# transformers chooses other processors where torchvision is: its models are tested with both.
integrations: $(VENV)/.package $(VENV)/.integrations ## tests with libraries too large for `make test`: napari with Qt (installs 400 MB)
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest tests/integrations $(ARGS)
	PYTHONPATH=$(VENV)/torchvision $(BIN)/python -m pytest tests/integrations/test_transformers.py $(ARGS)

# The first of these builds the abi3 wheel, and its native module is tried with all of them.
ABI3_PYTHONS ?= $(shell for p in python3.12 python3.13; do $$p --version >/dev/null 2>&1 && command -v $$p; done)
wheel-test: $(VENV)/.base ## build, repair, install and test the wheel in environments without a compiler
	PYTHON=$(CURDIR)/$(BIN)/python ABI3_PYTHONS="$(ABI3_PYTHONS)" tests/reliability/wheel_test.sh $(ARGS)

test-lowest: $(VENV)/.base ## the test suite with the lowest versions of pyproject.toml (ARGS=torch==2.6.0 for another torch)
	PYTHON=$(BIN)/python tests/reliability/lowest_test.sh $(ARGS)

test-newest: $(VENV)/.base ## the test suite with the newest versions of all packages but torch (ARGS=python3.13 for another Python)
	PYTHON=$(or $(ARGS),$(BIN)/python) sh tests/reliability/newest_test.sh

NATIVE = PYTHON=$(CURDIR)/$(BIN)/python CMAKE=$(CURDIR)/$(BIN)/cmake NINJA=$(CURDIR)/$(BIN)/ninja
test-arm: $(VENV)/.tools ## the native core for aarch64, run by qemu, against stored answers
	$(NATIVE) sh tests/reliability/arm_test.sh $(ARGS)

test-compilers: $(VENV)/.package ## the native core by Clang, for Windows and macOS, and on threads of its own (ARGS=clang for a part)
	$(NATIVE) sh tests/reliability/compilers_test.sh $(ARGS)

lock: ## write locks/ anew: the hashes of the versions in constraints.txt (needs Python 3.11)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python .ci/lock.py

clean: ## remove everything the other targets made, .venv included
	rm -rf $(VENV) build dist site demo-output experiments-output test-artefacts .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The tools that compile the core. Python 3.11 needs nothing else for that, so that `make -j` compiles while .base is
# installed. torch is pinned, and installed before anything that could choose another build of it: the locks are
# installed without dependencies, and constraints.txt after torch.
$(VENV)/.tools: constraints.txt locks/build.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@if $(IS_LOCKED); then \
		echo "installing locks/build.txt, hashes checked"; \
		$(HASHED) --requirement locks/build.txt; \
	else \
		echo "the locks are for Python 3.11: installing the versions of constraints.txt, hashes not checked"; \
		$(INSTALL) torch; \
		$(INSTALL) scikit-build-core nanobind cmake ninja; \
	fi
	@touch $@

# The dependencies of all extras but gpu. On other Pythons .core installs them, after torch.
$(VENV)/.base: $(VENV)/.tools locks/develop.txt
	@if $(IS_LOCKED); then \
		echo "installing locks/develop.txt, hashes checked"; \
		$(HASHED) --requirement locks/develop.txt; \
		$(INSTALL) torch; \
	fi
	@touch $@

$(VENV)/.core: $(VENV)/.tools pyproject.toml CMakeLists.txt $(wildcard cmake/* csrc/*/*)
	if $(IS_LOCKED); then $(INSTALL) --no-deps $(EDITABLE) .; else $(INSTALL) $(EDITABLE) '.[test]'; fi
	@touch $@

$(VENV)/.package: $(VENV)/.base $(VENV)/.core
	@touch $@

$(VENV)/.check: pyproject.toml constraints.txt | $(VENV)/.package
	$(IS_LOCKED) || $(INSTALL) $(EDITABLE) '.[dev]'
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/.package
	$(IS_LOCKED) || $(INSTALL) $(EDITABLE) '.[docs]'
	@touch $@

# Peers are optional: tests are skipped and benchmarks leave out a peer that cannot be installed. Their dependencies
# are here already, and one of them asks for torchvision, which it does not use. pydensecrf2 is built from source.
define install_peers
	@for peer in $(1); do \
		echo "installing $$peer for comparison"; \
		if $(IS_LOCKED); then $(HASHED) --requirement locks/$$peer.txt; else \
			PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(INSTALL) --no-deps $$peer; \
		fi >$(VENV)/$$peer.log 2>&1 \
			|| echo "$$peer could not be installed: nothing is compared with it (see $(VENV)/$$peer.log)"; \
	done
	@touch $@
endef

$(VENV)/.peers: constraints.txt | $(VENV)/.base
	$(call install_peers,$(TESTED_PEERS))

$(VENV)/.bench: constraints.txt | $(VENV)/.peers
	$(call install_peers,$(TIMED_PEERS))

# torchvision without dependencies, aside: the build for CUDA, which asks for a torch for CUDA, serves here.
$(VENV)/.integrations: pyproject.toml constraints.txt | $(VENV)/.base
	if $(IS_LOCKED); then $(HASHED) --requirement locks/integrations.txt \
		&& $(HASHED) --upgrade --target $(VENV)/torchvision --requirement locks/torchvision.txt; else \
		$(INSTALL) '.[integrations]' && $(INSTALL) --no-deps --upgrade --target $(VENV)/torchvision torchvision; fi
	@touch $@

# Looked for once; `make browser` looks again.
$(VENV)/.browser: | $(VENV)/.base
	@$(BIN)/python tests/apps/demo/browsers.py
	@touch $@
