"""The layer where people train and deploy: compiled, exported, in several processes, in half precision."""

import os
import socket

import pytest
import torch
from crfs import L, crf, image, logits
from helpers import normal
from torch import nn

from fwcrf import DenseCRF
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.layer import LEARNABLE

SINGLE = {"dtype": torch.float32}


def inputs(*batch, grid=(6, 7)):
    return image(*batch, grid=grid, **SINGLE), logits(*batch, grid=grid, **SINGLE)


# --- torch.compile --------------------------------------------------------------------------------


@pytest.fixture
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_compiled_without_a_break(fresh):
    layer = crf(**SINGLE, skip=0.5, num_steps=3)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for seed in range(2):  # other lattices have other numbers of vertices
        photo, z = image(2, grid=(6, 7), seed=seed, **SINGLE), logits(2, grid=(6, 7), seed=seed, **SINGLE)
        torch.testing.assert_close(compiled(photo, z), layer(photo, z))


def test_compiled_for_training(fresh):
    learnable = ("weights", "compatibility", "lambda", "steps", "skip")
    layer = crf(solver="efw", learnable=learnable, skip=0.5, num_steps=2, **SINGLE)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    photo, z = inputs(2)
    found = []
    for call in (layer, compiled):
        w = z.clone().requires_grad_()
        layer.zero_grad()
        (call(photo, w) * normal(*z.shape, dtype=torch.float32)).sum().backward()
        found.append([w.grad, *(p.grad.clone() for p in layer.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)


# --- torch.export ---------------------------------------------------------------------------------


def test_exported_for_inference_takes_other_images(tmp_path):
    layer = crf(learnable=("weights", "compatibility", "lambda"), num_steps=3, skip=0.5, **SINGLE).eval()
    photo, z = inputs(2)
    with torch.no_grad():
        program = torch.export.export(layer, (photo, z), strict=False)
        torch.export.save(program, tmp_path / "crf.pt2")
        loaded = torch.export.load(tmp_path / "crf.pt2").module()
        for seed in range(3):
            photo, z = image(2, grid=(6, 7), seed=seed, **SINGLE), logits(2, grid=(6, 7), seed=seed, **SINGLE)
            torch.testing.assert_close(loaded(photo, z), layer(photo, z))


# --- several processes ----------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, L, 1)
        self.crf = DenseCRF(
            L, [Spatial(1.21), Bilateral(2.93, 0.37)], learnable=LEARNABLE, skip=0.5, num_steps=2
        )

    def forward(self, photo):
        return self.crf(photo, self.conv(photo))


def loss_of(net, photo, target):
    return nn.functional.nll_loss(net(photo), target)


def data():
    return image(4, grid=(6, 7), **SINGLE), torch.arange(4 * 42).view(4, 6, 7) % L


def worker(rank: int, port: int, path: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(Net())
    photo, target = data()
    loss_of(net, photo[2 * rank : 2 * rank + 2], target[2 * rank : 2 * rank + 2]).backward()
    if rank == 0:
        torch.save([p.grad for p in net.parameters()], path)
    torch.distributed.destroy_process_group()


def test_two_processes_find_the_gradient_of_the_whole_batch(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    path = tmp_path / "gradients.pt"
    torch.multiprocessing.spawn(worker, (port, str(path)), nprocs=2)
    torch.manual_seed(0)
    net = Net()
    loss_of(net, *data()).backward()
    for together, p in zip(torch.load(path), net.parameters(), strict=True):
        torch.testing.assert_close(together, p.grad, rtol=1e-3, atol=1e-6)


# --- devices --------------------------------------------------------------------------------------


def test_the_device_is_that_of_the_tensors():
    """Without data: shapes go through on a device that holds none."""
    layer = crf(learnable=LEARNABLE, **SINGLE)
    assert all(p.device.type == "cpu" for p in layer.parameters())
    with pytest.raises(ValueError, match="image is on cpu and logits on meta"):
        layer(image(**SINGLE), logits(**SINGLE).to("meta"))
