"""Numbers of the permutohedral lattice that do not depend on torch."""

# The most features of a point that native code embeds.
MAX_DIMENSION = 16
# Weight of a neighbour relative to the centre of the blur, 1/4, 1/2, 1/4.
TAP = 0.5


def refuse_features(bad: int, points: int) -> None:
    """Raise the error for ``bad`` of the points with NaN or infinite features."""
    raise ValueError(
        f"features are NaN or infinite for {bad} of {points} points; expected finite numbers. "
        "Check the image for missing values, and that no bandwidth is too small for its units."
    )
