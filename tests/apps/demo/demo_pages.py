"""The demo served on a loopback port of its own, and small files to send to it."""

from __future__ import annotations

import io
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
from PIL import Image

from fwcrf.apps.demo.app import create_app
from fwcrf.apps.demo.serve import server as make_server

FROM_HERE = {"X-Fwcrf": "1"}
STROKES = [
    {"label": 0, "radius": 2, "points": [[3, 3], [3, 20]]},
    {"label": 1, "radius": 2, "points": [[30, 3], [30, 20]]},
]


@contextmanager
def served(host="127.0.0.1", sessions=None):
    """The address of a running server."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    server = make_server(create_app(host, sessions))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listening.close()


def two_halves(height=24, width=36, seed=0) -> np.ndarray:
    """A picture of two colours and noise."""
    image = np.full((height, width, 3), 60.0)
    image[:, width // 2 :] = 180, 120, 60
    image += np.random.default_rng(seed).normal(0, 12, image.shape)
    return image.clip(0, 255).astype(np.uint8)


def png(image: np.ndarray, form="PNG", **options) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, form, **options)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
