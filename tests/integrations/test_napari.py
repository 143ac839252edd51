"""The plugin in napari's own classes: manifest, layers, threads; and in its window, on a display."""

import os
import re
import shutil
import subprocess
import sys
import time
from ctypes.util import find_library
from pathlib import Path

import numpy as np
import pytest

import fwcrf
from fwcrf.integrations.napari.frames import Frames, kinds

# napari and its parts use deprecated names of newer libraries.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
H, W = 40, 50


def scene(seed=0):
    """An image of uint16, noisy probabilities (labels first), and the true labels."""
    random = np.random.default_rng(seed)
    truth = (np.indices((H, W))[1] > 20 + seed).astype(int)
    image = (1000 + 3000 * truth + random.normal(0, 200, (H, W))).clip(0).astype(np.uint16)
    one = np.clip(0.5 + 0.3 * (truth - 0.5) + random.normal(0, 0.2, (H, W)), 0.02, 0.98)
    return image, np.stack([1 - one, one]).astype(np.float32), truth


def stretched(image, low=0, high=5000):
    return (255 / (high - low) * (image.astype(np.float32) - low)).clip(0, 255)


def expected(image, p, **more):
    return fwcrf.refine(stretched(image), np.moveaxis(p, 0, -1), **more)


# --- without napari ------------------------------------------------------------------------------


def test_frames_are_refined_one_by_one():
    scenes = [scene(k) for k in range(3)]
    images, p = np.stack([one[0] for one in scenes]), np.stack([one[1] for one in scenes], 1)
    done = []
    frames = Frames(images, p, "probabilities", 2, limits=(0, 5000))
    labels = frames.refined(lambda *place: done.append(place))
    for found, (image, q, truth) in zip(labels, scenes, strict=True):
        np.testing.assert_array_equal(found, expected(image, q))
        assert (found == truth).mean() > 0.97 > (q.argmax(0) == truth).mean()
    assert done == [(0, 1, 1), (1, 1, 1), (2, 1, 1)]


def test_one_image_serves_all_frames_and_a_volume_is_one_grid():
    image, p, _ = scene()
    several = np.stack([p, p[:, ::-1]], 1)
    labels = Frames(image, several, "probabilities", 2, limits=(0, 5000)).refined(lambda *_: None)
    np.testing.assert_array_equal(labels[1], expected(image, p[:, ::-1]))
    images = np.stack([image] * 4)
    whole = Frames(
        images, several.repeat(2, 1), "probabilities", 3, limits=(0, 5000), spacing=(2.0, 1.0, 1.0)
    )
    labels = whole.refined(lambda *_: None)
    likely = np.moveaxis(several.repeat(2, 1), 0, -1)
    np.testing.assert_array_equal(labels, fwcrf.refine(stretched(images), likely, spacing=(2.0, 1.0, 1.0)))


@pytest.mark.parametrize("far", [300, 70_000, 1 << 33])
def test_labels_that_do_not_occur_take_no_memory(far):
    image, p, _ = scene()
    near = np.stack([p.argmax(0), np.zeros((H, W), int)])
    near[1, 3, 4] = -1  # not labelled
    scribbles = np.zeros((2, H, W), int)
    scribbles[0, 5:9, 30:34], scribbles[1, 20:24, 5:9] = 255, 2
    arguments = {"limits": (0, 5000), "arguments": {"from_labels": 0.65}}
    plain = Frames(image, near, "labels", 2, scribbles=scribbles, **arguments).refined(lambda *_: None)
    # Numbers in the same order: 0, 1, 2 and 0, far, far + 9.
    sparse = np.where(near == 1, far, near)
    marks = np.where(scribbles == 2, far + 9, scribbles)
    labels = Frames(image, sparse, "labels", 2, scribbles=marks, **arguments).refined(lambda *_: None)
    np.testing.assert_array_equal(labels, np.array([0, far, far + 9])[plain])
    assert labels.dtype == (np.int64 if far > 1 << 31 else np.int32)
    assert {*np.unique(labels[0])} == {0, far} and (labels[1, 20:24, 5:9] == far + 9).all()
    alone = Frames(image, np.zeros((H, W), int), "labels", 2, limits=(0, 5000)).refined(lambda *_: None)
    assert alone.shape == (H, W) and not alone.any()


def test_scribbles_with_the_axis_of_the_labels_are_taken_together():
    """As of a layer that napari makes while the layer of the probabilities is the active one."""
    image, p, _ = scene()
    flat = np.zeros((H, W), int)
    flat[5:9, 30:34], flat[20:24, 5:9] = 255, 1
    deep = np.zeros((2, H, W), int)
    deep[0, 5:9, 30:34], deep[1, 20:24, 5:9] = 255, 1
    found = [
        Frames(image, p, "probabilities", 2, limits=(0, 5000), scribbles=one).refined(lambda *_: None)
        for one in (flat, deep)
    ]
    np.testing.assert_array_equal(*found)
    assert (found[1][5:9, 30:34] == 0).all() and (found[1][20:24, 5:9] == 1).all()


def test_shapes_that_do_not_fit_are_refused():
    image, p, _ = scene()
    for frames in (
        Frames(image, p[:, 1:], "probabilities", 2),
        Frames(image, p, "probabilities", 2, scribbles=np.zeros((H, W + 1), int)),
        Frames(image, p, "probabilities", 3),
    ):
        with pytest.raises(ValueError, match="expected"):
            frames.refined(lambda *_: None)


def test_kinds_of_scores():
    assert kinds(np.zeros((3, 4), np.uint8)) == ("labels",)
    assert kinds(np.full((2, 3, 4), 0.5))[0] == "probabilities"
    assert kinds(np.full((2, 3, 4), -0.5))[0] == "logits"


# --- with it -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def qt():
    """Qt's application, without a window."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    pytest.importorskip("napari", reason="napari is not installed: make integrations")
    qtpy = pytest.importorskip("qtpy.QtWidgets", reason="Qt is not installed: make integrations")
    return qtpy.QApplication.instance() or qtpy.QApplication([])


@pytest.fixture
def viewer(qt):
    """Napari's model of a viewer, which has all but the canvas."""
    from napari.components import ViewerModel

    return ViewerModel()


@pytest.fixture
def widget(viewer, qt):
    from fwcrf.integrations.napari._widget import RefineLabels

    found = RefineLabels(viewer)
    yield found
    found.stop()
    wait(qt, lambda: found.worker is None)
    found.close()


def wait(qt, until, seconds=60.0):
    stop = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < stop, "the worker has not finished"
        qt.processEvents()
        time.sleep(0.005)


def refined(qt, widget):
    """The new layer."""
    count = len(widget.viewer.layers)
    widget.run.native.click()
    assert widget.cancel.enabled and not widget.run.enabled
    wait(qt, lambda: widget.worker is None)
    assert len(widget.viewer.layers) == count + 1
    assert widget.run.enabled and not widget.cancel.enabled and widget.progress.value == 1000
    return widget.viewer.layers[-1]


def test_the_manifest_is_found_and_valid(qt):
    from npe2 import PluginManager, PluginManifest

    from fwcrf.integrations.napari.sample import photograph

    manifest = PluginManifest.from_distribution("fwcrf")
    manifest.validate_imports()
    manager = PluginManager()
    manager.register(manifest)
    assert [one.display_name for one in manager.iter_widgets()] == ["Refine labels"]
    assert [one.key for _, many in manager.iter_sample_data() for one in many] == ["photograph"]
    image, p, labels = photograph()
    assert image[0].shape[:2] == p[0].shape[1:] == labels[0].shape
    np.testing.assert_allclose(p[0].sum(0), 1, atol=1e-5)


def test_probabilities_are_refined_at_the_place_of_the_image(qt, viewer, widget):
    from napari.utils.notifications import notification_manager

    image, p, _ = scene()
    place = {"scale": (0.5, 2.0), "translate": (3, 4), "rotate": 10, "units": ("um", "um")}
    layer = viewer.add_image(image, name="cells", contrast_limits=(0, 5000), **place)
    viewer.add_image(p, name="scores")
    widget.scores.value = viewer.layers["scores"]
    assert widget.kind.value == "probabilities" and not widget.confidence.enabled
    found = refined(qt, widget)
    assert (found.name, found._type_string) == ("scores refined", "labels")
    np.testing.assert_array_equal(found.data, expected(image, p))
    for name in ("scale", "translate", "rotate", "shear"):
        np.testing.assert_allclose(getattr(found, name), getattr(layer, name))
    assert found.units == layer.units
    widget.scaled.value = True
    scaled = refined(qt, widget)
    np.testing.assert_array_equal(scaled.data, expected(image, p, spacing=(0.5, 2.0)))
    widget.as_shown.value, widget.scaled.value = False, False
    refined(qt, widget)
    assert "the colour bandwidth is 6" in notification_manager.records[-1].message


def test_layers_that_lie_elsewhere_are_refused(qt, viewer, widget):
    from napari.utils.notifications import notification_manager

    image, p, _ = scene()
    place = {"scale": (0.5, 2.0), "translate": (3, 4), "rotate": 10}
    viewer.add_image(image, name="cells", contrast_limits=(0, 5000), **place)
    viewer.add_image(p, name="scores", scale=(1, 0.5, 2), translate=(0, 3, 4), rotate=10)
    viewer.add_labels(np.zeros((H, W), int), name="clicks", **{**place, "translate": (13, 4)})
    viewer.add_labels(p.argmax(0), name="bare")
    widget.scores.value = viewer.layers["scores"]
    before = len(notification_manager.records)
    found = refined(qt, widget).data
    np.testing.assert_array_equal(found, expected(image, p))
    assert len(notification_manager.records) == before
    widget.scribbles.value = viewer.layers["clicks"]
    widget.run.native.click()
    said = notification_manager.records[-1].message
    assert widget.worker is None and "clicks lies elsewhere than cells: its first pixel is pixel [19." in said
    widget.scribbles.value, widget.scores.value = None, viewer.layers["bare"]
    refined(qt, widget)
    said = [one.message for one in notification_manager.records[before + 1 :]]
    assert any("bare has no scale and no translation, as cells has" in one for one in said)


def test_labels_with_scribbles(qt, viewer, widget):
    image, p, _ = scene()
    labels, scribbles = p.argmax(0), np.zeros((H, W), int)
    scribbles[5:9, 30:34], scribbles[20:24, 5:9] = 255, 1  # against the image: labels 0 and 1
    viewer.add_image(image, contrast_limits=(0, 5000))
    viewer.add_labels(labels, name="labels")
    viewer.add_labels(scribbles, name="scribbles")
    widget.scores.value = viewer.layers["labels"]
    widget.scribbles.value, widget.confidence.value = viewer.layers["scribbles"], 0.65
    assert widget.kind.value == "labels" and widget.confidence.enabled
    found = refined(qt, widget).data
    marks = np.where(scribbles == 255, 0, np.where(scribbles == 0, -1, scribbles))
    known = fwcrf.refine(stretched(image), labels, from_labels=0.65, num_labels=2, scribbles=marks)
    np.testing.assert_array_equal(found, known)
    assert (found[5:9, 30:34] == 0).all() and (found[20:24, 5:9] == 1).all()


@pytest.mark.parametrize("axes", [2, 3])
def test_time_and_volumes(qt, viewer, widget, axes):
    image, p, _ = scene()
    viewer.add_image(np.stack([image, image[::-1]]), contrast_limits=(0, 5000), scale=(3, 1, 1))
    viewer.add_image(np.stack([p, p[:, ::-1]], 1), name="scores")
    widget.scores.value, widget.axes.value = viewer.layers["scores"], axes
    found = refined(qt, widget)
    assert found.data.shape == (2, H, W) and tuple(found.scale) == (3, 1, 1)
    if axes == 2:
        np.testing.assert_array_equal(found.data[1], expected(image[::-1], p[:, ::-1]))
    else:
        likely = np.moveaxis(np.stack([p, p[:, ::-1]], 1), 0, -1)
        whole = stretched(np.stack([image, image[::-1]]))
        np.testing.assert_array_equal(found.data, fwcrf.refine(whole, likely, spatial_dims=3))


def test_a_photograph_and_a_pyramid(qt, viewer, widget):
    image, p, _ = scene()
    rgb = np.dstack([stretched(image).astype(np.uint8)] * 3)
    viewer.add_image([rgb, rgb[::2, ::2]], rgb=True, multiscale=True)
    viewer.add_image(p[1], name="foreground")
    widget.scores.value = viewer.layers["foreground"]
    found = refined(qt, widget)
    np.testing.assert_array_equal(found.data, fwcrf.refine(rgb, p[1]))


def test_cancel_and_errors_leave_no_layer(qt, viewer, widget):
    from napari.utils.notifications import notification_manager

    image, p, _ = scene()
    widget.run.native.click()
    assert "choose an image" in notification_manager.records[-1].message
    viewer.add_image(np.stack([image] * 50), contrast_limits=(0, 5000))
    widget.run.native.click()
    assert "is both the image and what is refined" in notification_manager.records[-1].message
    viewer.add_image(np.stack([p] * 50, 1), name="scores")
    widget.scores.value = viewer.layers["scores"]
    widget.run.native.click()
    widget.cancel.native.click()
    wait(qt, lambda: widget.worker is None)
    assert len(viewer.layers) == 2 and widget.run.enabled
    assert notification_manager.records[-1].message == "cancelled"
    bad = np.stack([p] * 50, 1) - 3
    viewer.layers["scores"].data = bad
    widget.kind.value = "probabilities"
    widget.run.native.click()
    wait(qt, lambda: widget.worker is None)
    assert len(viewer.layers) == 2 and "negative values" in notification_manager.records[-1].message


PAGE = Path(__file__).parents[2] / "docs" / "napari.md"
# In place of napari.run(): wait for the result, draw the window if a file is named, and end.
AFTER = """
import sys, time
from qtpy.QtWidgets import QApplication

stop = time.monotonic() + 200
while widget.worker is not None:
    assert time.monotonic() < stop
    QApplication.processEvents()
    time.sleep(0.01)
print([layer.name for layer in viewer.layers])
if len(sys.argv) > 1:  # docs/assets/napari.jpg
    from napari.utils import DirectLabelColormap

    for name, colour in (("labels", "red"), ("probabilities refined", "cyan")):
        layer = viewer.layers[name]
        layer.colormap = DirectLabelColormap(color_dict={1: colour, None: "transparent"})
        layer.contour, layer.opacity = 3, 1.0
    viewer.window.resize(1300, 700)
    for _ in range(40):
        QApplication.processEvents()
        time.sleep(0.02)
    viewer.reset_view()
    viewer.window.screenshot(sys.argv[1], canvas_only=False, flash=False)
viewer.close()
"""


# Libraries of Debian that Qt's wheel needs for a display, and does not bring.
OF_QT = ["xcb-cursor", "xcb-icccm", "xcb-keysyms", "xcb-shape", "xkbcommon-x11"]


@pytest.mark.skipif(
    not (sys.platform == "linux" and shutil.which("xvfb-run") and all(map(find_library, OF_QT))),
    reason="a canvas needs a display and OpenGL: apt-get install xvfb xauth libgl1-mesa-dri libxcb-cursor0 "
    "libxcb-icccm4 libxcb-keysyms1 libxcb-shape0 libxkbcommon-x11-0",
)
def test_the_script_of_the_page_in_the_window(qt):
    (script,) = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert script.endswith("napari.run()\n")
    script = script.removesuffix("napari.run()\n") + AFTER
    environment = {**os.environ, "QT_QPA_PLATFORM": "xcb", "LIBGL_ALWAYS_SOFTWARE": "1"}
    command = ["xvfb-run", "-a", "-s", "-screen 0 1400x1000x24", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['photograph', 'probabilities', 'labels', 'probabilities refined']"
