"""What is raised for a file that cannot be used."""


class FileError(ValueError):
    """A file that cannot be read or written; the message says which, why, and what to do."""
