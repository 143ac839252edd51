"""Programs on top of the library: command line, files, batches, training, experiments, a page.

The library imports nothing from here.
"""
