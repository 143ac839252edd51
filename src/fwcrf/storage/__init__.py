"""Atomic file writes, and a size check before memory is allocated."""
