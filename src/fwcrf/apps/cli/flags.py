"""Messages of the library in the words of the command line: flags in place of Python arguments."""

from __future__ import annotations

import re

# Texts of messages, as patterns, and the same for a user of the commands; the first that fits is taken.
_WORDS = (
    (r"kind='\w+', or --from", "--from"),
    (r"pass mask > 0", "pass --from mask"),
    (r"without from_logits=True, and to a layer as their logarithm \(.*?\)", "with --from probabilities"),
    (r"pass probabilities to fwcrf\.refine", "pass probabilities"),
    (r"from_logits and from_labels are both given", "--from logits and --from labels are both given"),
    (r"from_logits=True", "--from logits"),
    (r"from_labels=True", "--from labels"),
    (r"from_labels=([\d.e-]+\d)", r"--from labels --confidence \1"),
    (r"omit from_labels for probabilities", "pass --from probabilities"),
    (r"set them to -1: (?:np\.where\(labels == |labels\.long\(\)\.masked_fill\(labels == )(\d+), .*?\)\)?\.",
     r"pass --void \1."),
    (r"np\.moveaxis\(maps, (\d+), \d+\)", r"--map-axis \1"),
    (r"pass classes= with", "pass --classes with"),
    (r"np\.moveaxis\((?!image)\w[\w ]*, (\d+), \d+\)", r"--label-axis \1"),
    (r"(np\.moveaxis\(image, \d+, \d+\))", r"a file of \1"),
    (r"if not, pass channel_axis=(\d+)", r"if not, pass --label-axis \1"),
    (r"channel_axis=(-?\d+)", r"--label-axis \1, and an image with its channels last"),
    (r"pass channel_axis=None(, or for a volume spatial_dims=3)?", "save it with one, image[..., None]"),
    (r"last, or at channel_axis=", "last, or at --label-axis"),
    (r"move them: channel_axis=", "pass --label-axis"),
    (r"(?:\(or pass channel_axis=\))", "of its file"),
    (r": spatial_dims= sets their number", ", as the image has"),
    (r"\blabel_axis=(-?\d+)", r"--label-axis \1"),
    (r"resize='(\w+)'", r"--resize \1"),
    (r"align='(\w+)'", r"--align \1"),
    (r"align=\(([\d.e+-]+), ([\d.e+-]+)\)", r"--align \1,\2"),
    (r"\balign=(?=[\d.-])", "--align "),
    (r"without resize=", "without --resize"),
    (r"\balign has ", "--align has "),
    (r"num_labels=(\d+)", r"--labels \1"),
    (r"num_steps=(-?[\w.]+)", r"--steps \1"),
    (r"rounding='(\w+)'", r"--rounding \1"),
    (r"compatibility=", "--compatibility "),
    (r"pass image \* [\d.e+-]+, or a bandwidth", "pass a bandwidth"),
    (r"pass values from 0 to 255, or a bandwidth", "pass an image with values from 0 to 255, or a bandwidth"),
    (r"color=[\d.e+-]+, that of the default: Bilateral\((.*?), (.*?), (.*?)\)",
     r"that of the default: --preset default --bilateral \1 \2 \3"),
    (r"setting 'weight'", "setting 'weight' (--lambda)"),
    (r"raise the weights of the kernels", "raise the weights of --bilateral and --spatial"),
    (r"np\.clip\(probabilities, (.*?)\) is", r"np.clip(probabilities, \1), in Python, is"),
    (r"[Pp]ixels without scores can be left out: ignore= takes a mask",
     "Pixels without scores can be left out in Python: fwcrf.refine has ignore="),
    (r"\bmemory=(\d+)", r"--memory \1"),
    (r"Allow as much, or less overlap=\.", "Allow as much."),
    (r"smaller parts by tile= and overlap=", "in Python smaller parts: fwcrf.refine has tile= and overlap="),
    (r"keep= takes a mask of pixels", "In Python, keep= of fwcrf.refine takes a mask of pixels"),
)  # fmt: skip
_PATTERNS = [(re.compile(pattern), words) for pattern, words in _WORDS]


def in_flags(message: str) -> str:
    """The message with flags in place of arguments of ``fwcrf.refine``.

    >>> in_flags("If these are logits, pass from_logits=True; else resize='scores'.")
    'If these are logits, pass --from logits; else --resize scores.'
    """
    for pattern, words in _PATTERNS:
        message = pattern.sub(words, message)
    return message
