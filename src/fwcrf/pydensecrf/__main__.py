"""``python -m fwcrf.pydensecrf script.py [arguments]``: run an unchanged script written for pydensecrf."""

from __future__ import annotations

import os
import runpy
import sys

from fwcrf.pydensecrf import install


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m fwcrf.pydensecrf script.py [arguments]", file=sys.stderr)
        raise SystemExit(0 if len(sys.argv) > 1 else 2)
    script = sys.argv[1]
    if not os.path.isfile(script):
        print(f"{script} is not a file; expected a Python script that imports pydensecrf.", file=sys.stderr)
        raise SystemExit(2)
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    install()
    # While it runs, sys.modules["__main__"] is the script: spawned children import it, not this file.
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
