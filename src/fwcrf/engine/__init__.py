"""The CPU engine: P x + u of a dense model, and whole runs of a solver, in native code.

==========  =====================================================================================
``update``  one step of a solver as the engine takes it: seven numbers
``limits``  which terms, arrays and updates the engine takes, and a sentence for the rest
``model``   the native model: apply P x + u, run updates, both with gradients
``prune``   runs with fewer labels and the same result
==========  =====================================================================================

``fwcrf.solvers.plan`` translates solvers into updates. docs/engine.md describes the native side.
"""
