"""The widget of the plugin: layers and settings in, a layer of labels out."""

# Without napari, types cannot be checked.
# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

import numpy as np

from fwcrf import presets
from fwcrf.integrations.napari.frames import Cancelled, Frames, kinds, overall
from fwcrf.integrations.napari.place import check_place
from fwcrf.optional import needed

needed("napari", "napari")
from magicgui.widgets import (  # noqa: E402
    CheckBox,
    ComboBox,
    Container,
    FloatSpinBox,
    ProgressBar,
    PushButton,
    SpinBox,
)
from napari.layers import Image, Labels  # noqa: E402
from napari.utils.notifications import show_error, show_info, show_warning  # noqa: E402
from qtpy.QtCore import QObject, Signal  # noqa: E402  # pyright: ignore[reportPrivateImportUsage]
from superqt.utils import create_worker  # noqa: E402

_STEPS = 1000  # of the progress bar


class Ticks(QObject):
    """Progress from the thread of the work to that of the window."""

    ticked = Signal(float)


class RefineLabels(Container):
    """Choice of layers and settings, Refine and Cancel, and the progress."""

    def __init__(self, napari_viewer: Any) -> None:
        self.viewer, self.worker, self.ticks = napari_viewer, None, Ticks()
        self.image = ComboBox(label="image", choices=lambda _: self._layers(Image))
        self.scores = ComboBox(
            label="refine", choices=lambda _: self._layers(Labels, Image),
            tooltip="A label map, or probabilities or logits with the labels on the first axis.",
        )  # fmt: skip
        self.kind = ComboBox(label="which holds", choices=["labels", "probabilities", "logits"])
        self.scribbles = ComboBox(
            label="scribbles", choices=lambda _: self._layers(Labels), nullable=True,
            tooltip="Painted labels that are certain. Unpainted pixels, 0, are free.",
        )  # fmt: skip
        self.zero = SpinBox(label="scribble for label 0", value=255, min=1, max=65535)
        self.axes = ComboBox(
            label="grid", choices=[("2-D, frame by frame", 2), ("3-D", 3)],
            tooltip="Axes before those of the grid, such as time, are refined one by one.",
        )  # fmt: skip
        self.preset = ComboBox(label="preset", choices=presets.names())
        self.confidence = FloatSpinBox(label="confidence in labels", value=0.7, min=0.51, max=0.99, step=0.05)
        self.as_shown = CheckBox(
            label="contrast as shown", value=True,
            tooltip="Black and white are 0 and 255, for which presets are made. Else values as they are.",
        )  # fmt: skip
        self.scaled = CheckBox(
            label="distances in the layer's scale", value=False,
            tooltip="Position bandwidths in the units of the scale, such as micrometres. Else pixels.",
        )  # fmt: skip
        self.run = PushButton(text="Refine")
        self.cancel = PushButton(text="Cancel", enabled=False)
        self.progress = ProgressBar(value=0, max=_STEPS, visible=True)
        buttons = Container(widgets=[self.run, self.cancel], layout="horizontal", labels=False)
        super().__init__(
            widgets=[
                self.image, self.scores, self.kind, self.scribbles, self.zero, self.axes, self.preset,
                self.confidence, self.as_shown, self.scaled, buttons, self.progress,
            ]
        )  # fmt: skip
        self.run.changed.connect(self.start)
        self.cancel.changed.connect(self.stop)
        self.scores.changed.connect(self._adapt)
        self.image.changed.connect(self._adapt)
        self.ticks.ticked.connect(self._show)
        for event in (self.viewer.layers.events.inserted, self.viewer.layers.events.removed):
            event.connect(self._renew)
        self._adapt()

    def frames(self) -> Frames:
        """The chosen layers and settings."""
        image, scores, scribbles = self.image.value, self.scores.value, self.scribbles.value
        if image is None or scores is None:
            raise ValueError("choose an image, and a layer of labels or scores to refine.")
        if image is scores:
            raise ValueError(f"{image.name} is both the image and what is refined; expected two layers.")
        if scribbles is scores:
            raise ValueError(f"{scores.name} is both refined and the scribbles; expected two layers.")
        values, axes = _data(image), int(self.axes.value)
        limits = None
        if image.rgb:
            values = values[..., :3]
            limits = (0.0, 1.0) if np.dtype(values.dtype).kind == "f" else None
        elif self.as_shown.value:
            low, high = map(float, image.contrast_limits)
            limits = (low, high)
        arguments: dict[str, Any] = {"preset": self.preset.value}
        if self.kind.value == "labels":
            arguments["from_labels"] = float(self.confidence.value)
        return Frames(
            values, _data(scores), self.kind.value, axes, image.rgb, limits,
            None if scribbles is None else _data(scribbles), int(self.zero.value),
            tuple(float(s) for s in image.scale[-axes:]) if self.scaled.value else None, arguments,
        )  # fmt: skip

    def start(self) -> None:
        """Refine in a thread. The result is a new layer; a failure is shown as a notification."""
        if self.worker is not None:
            return
        try:
            frames = self.frames()
            frames.check()
            notes = [check_place(self.image.value, one, frames.grid) for one in self._laid_on_it()]
        except ValueError as error:
            show_error(str(error))
            return
        for note in filter(None, notes):
            show_warning(note)
        image, name = self.image.value, f"{self.scores.value.name} refined"

        def work() -> tuple[np.ndarray | None, Exception | None]:
            def ticked(*place: int) -> None:
                if worker.abort_requested:
                    raise Cancelled
                self.ticks.ticked.emit(overall(*place, count=frames.count))

            # An exception that leaves a thread of Qt ends some programs.
            try:
                return frames.refined(ticked), None
            except Exception as error:
                return None, error

        def take(found: tuple[np.ndarray | None, Exception | None]) -> None:
            labels, error = found
            if labels is None:
                show_error(str(error))
            else:
                self._add(labels, image, name)

        worker = create_worker(work, _start_thread=False)
        self.worker = worker
        worker.returned.connect(take)
        worker.warned.connect(lambda given: show_warning(str(given[0])))
        worker.finished.connect(lambda *_: self._rest())
        self.run.enabled, self.cancel.enabled, self.progress.value = False, True, 0
        worker.start()

    def stop(self) -> None:
        """End the work after the current part."""
        if self.worker is not None:
            self.worker.quit()

    def _add(self, labels: np.ndarray, image: Any, name: str) -> None:
        place: dict[str, Any] = {"name": name}
        if labels.ndim == image.ndim:
            names = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")
            place |= {one: getattr(image, one) for one in names if hasattr(image, one)}
        else:  # an image without the axis of time
            extra = labels.ndim - image.ndim
            place |= {
                "scale": (*[1.0] * extra, *image.scale),
                "translate": (*[0.0] * extra, *image.translate),
            }
        self.viewer.add_layer(Labels(labels, **place))

    def _rest(self) -> None:
        if self.worker is not None and self.worker.abort_requested:
            show_info("cancelled")
        self.worker = None
        self.run.enabled, self.cancel.enabled = True, False

    def _show(self, share: float) -> None:
        self.progress.value = round(_STEPS * share)

    def _adapt(self) -> None:
        if self.scores.value is not None:
            self.kind.choices = kinds(_data(self.scores.value))
        self.confidence.enabled = self.kind.value == "labels"

    def _laid_on_it(self) -> list[Any]:
        """The layers whose pixels have to lie on the pixels of the image."""
        return [one for one in (self.scores.value, self.scribbles.value) if one is not None]

    def _renew(self) -> None:
        for choice in (self.image, self.scores, self.scribbles):
            choice.reset_choices()

    def _layers(self, *kinds_: type) -> list[Any]:
        # The label of a choice is the layer's name.
        return [layer for layer in self.viewer.layers if isinstance(layer, kinds_)]


def _data(layer: Any) -> Any:
    """The values of a layer, of a pyramid the finest."""
    return layer.data[0] if layer.multiscale else layer.data
