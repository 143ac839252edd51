"""What is raised for a file that cannot be used."""


class FileError(ValueError):
    """A file that cannot be read or written; the message says which, why, and what to do."""

    def __init__(self, message: str) -> None:
        # A damaged file may have control characters where it has names, and terminals obey those.
        super().__init__("".join(c if c.isprintable() else " " if c.isspace() else "?" for c in message))
