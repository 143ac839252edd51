"""Interactive web page: a picture, scribbles or scores, and sliders for all settings.

::

    pictures     pictures to segment
    scribbles    strokes -> map of fixed labels
    colours      picture, scribbles -> scores
    presets      settings of refine by name, as values of the page's controls
    request      validation of the page's requests
    sessions     data of each visitor, separate and bounded
    solve        scores, settings -> labels and energies, step by step
    snippet      the same computation as a Python program
    guard, app   access control, and routes
    connections  time-outs for half-sent requests
    serve        the command ``fwcrf demo``

A program made by ``snippet`` imports the first three modules, ``files``, ``batch`` and ``fwcrf.examples``.
"""
