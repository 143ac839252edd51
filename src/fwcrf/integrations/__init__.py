"""Doors for other libraries: one file each, which imports its library when it is used.

They follow the conventions of the library they serve, and do nothing that ``fwcrf.refine`` does not do.
"""
