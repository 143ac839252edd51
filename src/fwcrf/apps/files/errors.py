"""The exception for unusable files."""

from fwcrf.apps.printable import printable

_LONGEST = 1500


class FileError(ValueError):
    """A file cannot be read or written. The message names the file, the cause and a remedy.

    A longer message, as of a file that is one long name, is shortened in its middle.
    """

    def __init__(self, message: str) -> None:
        half = _LONGEST // 2
        short = f"{message[:half]} ... {message[-half:]}" if len(message) > _LONGEST else message
        super().__init__(printable(short))
