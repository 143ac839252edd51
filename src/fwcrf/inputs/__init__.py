"""Readers of user input: arrays of any kind and layout, scores, masks, sizes, tiles.

Every reader returns tensors in the library's layout, ``(*batch, n, channels)``.
"""
