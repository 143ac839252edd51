"""``python -m fwcrf`` is ``fwcrf``."""

from fwcrf.apps.cli import main

if __name__ == "__main__":
    main()
