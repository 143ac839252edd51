"""Safe files: written whole or not at all, with sizes that are checked before memory is taken."""
