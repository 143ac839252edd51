"""Store pydensecrf's answers to the cases beside this file: ``python tests/dropin/make_reference.py``.

Made with pydensecrf2 1.1, which ``make .venv/.peers`` installs.
"""

import os

import dropin_cases as cases
import numpy as np
from client_cases import CLIENTS
from dropin_cases import REFERENCE


def main() -> None:
    from pydensecrf import densecrf, utils

    answers = {
        **{f"marginals: {name}": value for name, value in cases.marginals(densecrf, utils).items()},
        **{f"utils: {name}": value for name, value in cases.helpers(utils).items()},
        **{f"client: {name}": case(densecrf, utils) for name, case in CLIENTS.items()},
    }
    partial = REFERENCE.with_name("reference.part.npz")
    np.savez_compressed(partial, **answers)
    os.replace(partial, REFERENCE)
    print(f"{len(answers)} arrays, {REFERENCE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
