"""Safe YAML: plain values only, no objects, no aliases, bounded size and nesting."""

from __future__ import annotations

from typing import Any

from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.safe_json import DEEPEST, check_depth, too_deep
from fwcrf.optional import needed

LARGEST = 1 << 20


def load_yaml(text: bytes | str, source: str, extra: str) -> Any:
    """Parsed YAML. Error messages name ``source``. ``extra`` is the extra of fwcrf that installs PyYAML.

    Aliases raise FileError: a few lines of them can expand to more values than memory holds, or to a list
    that contains itself.
    """
    yaml = needed("yaml", extra)
    if len(text) > LARGEST:
        raise FileError(f"{source} is larger than {LARGEST} bytes; expected a few lines of settings.")

    class Plain(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                name = self.peek_event().anchor
                raise FileError(f"{source} has the alias *{name}; expected values written out.")
            if self.depth > DEEPEST:
                raise FileError(too_deep(source))
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    try:
        return check_depth(yaml.load(text, Plain), source)
    except FileError:
        raise
    # YAMLError, and ValueError, IndexError and more from the constructors of numbers and dates.
    except Exception as error:
        raise FileError(f"{source} is not YAML: {' '.join(str(error).split())}") from error
