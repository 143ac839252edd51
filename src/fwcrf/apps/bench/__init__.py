"""Speed, memory, growth and accuracy, beside pydensecrf: ``fwcrf bench``."""

import os

# Read when torch starts its threads. Waiting threads that spin take the cores from whoever works.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
