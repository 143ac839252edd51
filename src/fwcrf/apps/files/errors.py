"""The exception for unusable files."""


class FileError(ValueError):
    """A file cannot be read or written. The message names the file, the cause and a remedy."""

    def __init__(self, message: str) -> None:
        # Names in a damaged file may contain control characters, which a terminal would obey.
        super().__init__("".join(c if c.isprintable() else " " if c.isspace() else "?" for c in message))
