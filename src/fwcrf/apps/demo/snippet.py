"""Python program that reproduces the mask of the page."""

from __future__ import annotations

from dataclasses import fields

import torch

from fwcrf.apps.demo.presets import without_control
from fwcrf.apps.demo.request import Request
from fwcrf.apps.demo.sessions import Given, Result
from fwcrf.apps.demo.solve import kernels_of
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.presets import KERNELS


def snippet(result: Result, *, mask: str = "mask.png") -> str:
    """Program that writes the same labels to ``mask``. It expects the visitor's files in its folder."""
    request, picture, given = result.request, result.picture, result.given
    L = request.num_labels if given is None else given.logits.shape[-1]
    reader = "bundled" if picture.bundled else "read_picture"
    lines = [f"image = {reader}({picture.name!r})"]
    imports = ["import fwcrf", f"from fwcrf.apps.demo.pictures import {reader}"]
    arguments = []
    if request.strokes:
        imports.append("from fwcrf.apps.demo.scribbles import drawn")
        lines += ["strokes = [  # label, radius, points (x, y)"]
        lines += [f"    ({label}, {radius}, {list(points)})," for label, radius, points in request.strokes]
        lines += ["]", "scribbles = drawn(strokes, image.shape[:2])"]
        arguments.append("scribbles=scribbles")
    if given is None:
        imports.insert(1, "from fwcrf.apps.demo.colours import colour_scores")
        lines.append(f"scores = colour_scores(image, scribbles, num_labels={L}, trust={request.trust})")
        arguments.append("from_logits=True")
    elif given.kind == "network":
        imports.append("from fwcrf import examples")
        lines.append(f"scores = examples.load({given.name!r}).logits")
        arguments += ["from_logits=True", "resize='scores'"]
    elif given.kind == "labels":
        imports.append("from fwcrf.apps.batch.job import without_void")
        lines += [
            f"labels = read_scores({given.name!r}, kind='labels').values",
            "scores = without_void(labels, 255, 'the label map')",
        ]
        arguments += ["from_labels=True", *_resized(given)]
    elif given.kind == "mask":
        lines.append(f"scores = read_scores({given.name!r}, kind='mask').values")
        arguments += ["from_labels=True", *_resized(given)]
    else:
        axis = f", label_axis={given.label_axis}" if given.label_axis != -1 else ""
        lines.append(
            f"scores = read_scores({given.name!r}, kind={given.kind!r}{axis}).values.astype('float32')"
        )
        arguments += [f"from_logits={given.kind == 'logits'}", *_resized(given)]
    reader = "" if given is None or given.kind == "network" else "read_scores, "
    imports.append(f"from fwcrf.apps.files import {reader}write_labels")
    kernels = kernels_of(request)
    imports.append(f"from fwcrf.kernels import {', '.join(sorted(type(k).__name__ for k in kernels))}")
    arguments += [f"{name}={value!r}" for name, value in without_control(request.preset).items()]
    lines += [
        "labels = fwcrf.refine(",
        "    image,",
        "    scores,",
        f"    solver=fwcrf.solvers.get({', '.join([repr(request.solver), *_settings(request)])}),",
        f"    num_steps={request.num_steps},",
        f"    balance={request.balance!r},",
        f"    kernels=[{', '.join(map(_kernel, kernels))}],",
        *(f"    {argument}," for argument in arguments),
        ")",
        f"write_labels({mask!r}, labels)",
    ]
    return "\n".join(
        [
            '"""Reproduces the mask of the fwcrf demo: pip install \'fwcrf[demo]\'."""',
            "",
            "import torch",
            "",
            *sorted(imports, key=lambda line: (line.startswith("from"), line)),
            "",
            f"torch.set_num_threads({torch.get_num_threads()})  # more threads may change a pixel",
            *lines,
            "",
        ]
    )


def _resized(given: Given) -> list[str]:
    return ["resize='scores'", *([f"align={given.align!r}"] if given.align != "centers" else [])]


def _settings(request: Request) -> list[str]:
    return [f"{name}={value!r}" for name, value in request.settings(request.solver).items()]


def _kernel(kernel: Spatial | Bilateral) -> str:
    """Call that makes the kernel, without fields that have no control and are the default."""
    shown = KERNELS[type(kernel).__name__.lower()]
    values = {f.name: getattr(kernel, f.name) for f in fields(kernel)}
    rest = {f.name for f in fields(kernel) if values[f.name] != f.default} - {*shown}
    given = ", ".join(f"{name}={values[name]!r}" for name in (*shown, *sorted(rest)))
    return f"{type(kernel).__name__}({given})"
