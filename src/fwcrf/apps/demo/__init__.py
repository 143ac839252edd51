"""A page on which to try it: a picture, scribbles or scores, and everything else by sliders.

::

    pictures     what is segmented
    scribbles    strokes -> a map of certain labels
    colours      picture, scribbles -> scores
    request      what the page asks for, checked
    sessions     what a visitor has, apart from all others, and bounded
    solve        scores, settings -> labels and energies, step by step
    snippet      the same as a Python program
    guard, app   who may ask, and for what
    serve        the program

The first three and ``files`` are all that a program made by ``snippet`` needs.
"""
