"""Python program that reproduces the mask of the page."""

from __future__ import annotations

import torch

from fwcrf.apps.demo.request import Request
from fwcrf.apps.demo.sessions import Result
from fwcrf.apps.demo.solve import kernels_of


def snippet(result: Result, *, mask: str = "mask.png") -> str:
    """Program that writes the same labels to ``mask``. It expects the visitor's files in its folder."""
    request, picture, uploaded = result.request, result.picture, result.uploaded
    L = request.num_labels if uploaded is None else uploaded.logits.shape[-1]
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
    if uploaded is None:
        imports.insert(1, "from fwcrf.apps.demo.colours import colour_scores")
        lines.append(f"scores = colour_scores(image, scribbles, num_labels={L}, trust={request.trust})")
        arguments.append("from_logits=True")
    elif uploaded.kind == "labels":
        imports.append("from fwcrf.apps.batch.job import without_void")
        lines += [
            f"labels = read_scores({uploaded.name!r}, kind='labels').values",
            "scores = without_void(labels, 255, 'the label map')",
        ]
        arguments += ["from_labels=True", "resize='scores'"]
    elif uploaded.kind == "mask":
        lines.append(f"scores = read_scores({uploaded.name!r}, kind='mask').values")
        arguments += ["from_labels=True", "resize='scores'"]
    else:
        axis = f", label_axis={uploaded.label_axis}" if uploaded.label_axis != -1 else ""
        lines.append(
            f"scores = read_scores({uploaded.name!r}, kind={uploaded.kind!r}{axis}).values.astype('float32')"
        )
        arguments += [f"from_logits={uploaded.kind == 'logits'}", "resize='scores'"]
    imports.append(f"from fwcrf.apps.files import {'' if uploaded is None else 'read_scores, '}write_labels")
    kernels = kernels_of(request)
    imports.append(f"from fwcrf.kernels import {', '.join(sorted(type(k).__name__ for k in kernels))}")
    shown = [_kernel(request, type(kernel).__name__) for kernel in kernels]
    lines += [
        "labels = fwcrf.refine(",
        "    image,",
        "    scores,",
        f"    solver=fwcrf.solvers.get({', '.join([repr(request.solver), *_settings(request)])}),",
        f"    num_steps={request.num_steps},",
        f"    kernels=[{', '.join(shown)}],",
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


def _settings(request: Request) -> list[str]:
    return [f"{name}={value!r}" for name, value in request.settings(request.solver).items()]


def _kernel(request: Request, name: str) -> str:
    values = {"Spatial": request.spatial, "Bilateral": request.bilateral}[name]
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in values.items())})"
