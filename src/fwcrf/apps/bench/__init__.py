"""Benchmarks of speed, memory, scaling and accuracy, compared with pydensecrf: ``fwcrf bench``."""

import os

# Read when torch starts its threads. Spinning idle threads would slow down the other programs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
