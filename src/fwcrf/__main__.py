"""``python -m fwcrf`` is ``fwcrf``."""

from fwcrf.cli import main

if __name__ == "__main__":
    main()
