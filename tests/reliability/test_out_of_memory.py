"""Without memory, public functions raise MemoryError with the number of bytes that were asked for."""

import subprocess
import sys

import pytest

# Limits the address space to a little more than the process has, and lifts the limit for the next call.
PROGRAM = """
import resource, sys
import numpy as np, torch
import fwcrf
from fwcrf.graphs import SparseMRF

torch.set_num_threads(1)

def refine(side=1200, **settings):
    y, x = np.mgrid[:side, :side]
    image = np.stack([x // 8, y // 8, (x + y) // 16], -1).astype(np.uint8)
    scores = np.ones((side, side, 8), np.float32)
    return lambda: fwcrf.refine(image, scores, from_logits=True, num_steps=2, **settings)

def graph(n=400_000):
    nodes = torch.arange(n)
    edges, unary = torch.stack([nodes[:-1], nodes[1:]], -1), torch.zeros(n, 21)
    return lambda: SparseMRF(unary, edges, 1.0).solve("mf", num_steps=2)

make = {"engine": refine, "generic": lambda *side: refine(*side, solver="fista"), "graph": graph}[sys.argv[1]]
make(40)()
call, again = make(), make(40)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (20 << 20), hard))
try:
    call()
except MemoryError as error:
    message = str(error)
else:
    message = "none"
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
again()
print(message)
"""


@pytest.mark.linux
@pytest.mark.parametrize("path", ["engine", "generic", "graph"])
def test_memory_error_names_the_bytes(path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    message = done.stdout.strip()
    assert message.startswith("no memory for an array of "), message
    assert int(message.split()[-2]) > 1 << 20


# Every door is called with arrays that repeat one number, and needs a copy of at least 256 MiB.
DOORS = """
import resource
import numpy as np, torch
import fwcrf, fwcrf.pydensecrf.densecrf as dcrf
from fwcrf import kernels, lp, pairwise
from fwcrf.graphs import SparseMRF

torch.set_num_threads(1)
side, labels = 300, 1000
image, logits = torch.zeros(3, side, side), torch.zeros(1, 1, 1).expand(labels, side, side)
x = torch.full((1, 1), 1 / labels).expand(side * side, labels)
crf = fwcrf.DenseCRF(labels)
K, by_lattice = kernels.Spatial().operator(image), kernels.Bilateral().operator(image)
E = fwcrf.Energy(pairwise.dense([K], labels), x)
found = fwcrf.minimize(E, "fw", x, num_steps=0)
many = torch.zeros(1, 5).expand(30_000_000, 5)
edges = torch.stack([torch.arange(side * side - 1), torch.arange(1, side * side)], -1)
mrf = SparseMRF(torch.zeros(side * side, 30), edges, 1.0)
wide = dcrf.DenseCRF2D(10_000, 10_000, 2)
likely = np.broadcast_to(np.float64(0.5), (30_000_000, 2))
points = np.broadcast_to(np.uint8(0), (30_000_000, 1))

doors = {
    "DenseCRF": lambda: fwcrf.DenseCRF(9000, learnable=("compatibility",)),
    "DenseCRF.forward": lambda: crf(image, logits),
    "DenseCRF.energy": lambda: crf.energy(image, logits),
    "DenseCRF.solve": lambda: crf.solve(image, logits),
    "Kernel.on": lambda: kernels.Gaussian(precision=2.0, method="exact").on(kernels.Domain(many)),
    "Kernel.operator": lambda: kernels.Bilateral().operator(torch.zeros(3, 1, 1).expand(3, 6000, 6000)),
    "Gaussian.operator": lambda: kernels.Gaussian(precision=2.0).operator(many),
    "Spatial on x": lambda: K(x),
    "Bilateral on x": lambda: by_lattice(x),
    "Exact on x": lambda: kernels.Exact(torch.zeros(side * side, 1))(x),
    "Operator.to_dense": lambda: K.to_dense(),
    "Energy.grad": lambda: E.grad(x),
    "Energy.value": lambda: E.value(x),
    "Energy.curvature": lambda: E.curvature(x),
    "Energy.hessian": lambda: E.hessian(x),
    "Energy.smoothness": lambda: E.smoothness,
    "Energy.start": lambda: E.start(),
    "Energy.of_labels": lambda: E.of_labels(torch.zeros(side * side, dtype=torch.int64)),
    "Energy.of_logits": lambda: fwcrf.Energy.of_logits(E.pairwise, x),
    "minimize": lambda: fwcrf.minimize(E, "fista", num_steps=1),
    "minimize in the engine": lambda: fwcrf.minimize(E, "l2fw", num_steps=1),
    "Solution.energy": lambda: found.energy,
    "refine_points": lambda: fwcrf.refine_points(points, None, likely),
    "SparseMRF": lambda: SparseMRF(torch.zeros(1, 2).expand(50_000_000, 2), edges, 1.0),
    "SparseMRF.tables": lambda: mrf.tables(),
    "SparseMRF.given_tables": lambda: mrf.given_tables(),
    "SparseMRF.solve": lambda: SparseMRF(torch.zeros(4, 9000), edges[:3], 1.0).solve("lp-meshi"),
    "relax": lambda: lp.relax(torch.zeros(4, 9000), edges[:3], torch.zeros(1, 1, 1).expand(3, 9000, 9000)),
    "grid": lambda: fwcrf.graphs.grid((7000, 7000)),
    "pydensecrf.DenseCRF": lambda: dcrf.DenseCRF(50_000_000, 21),
    "a size of more than 63 bits": lambda: dcrf.DenseCRF(10**12, 10**12),
    "pydensecrf.addPairwiseGaussian": lambda: wide.addPairwiseGaussian(3, 3),
    "pydensecrf.inference": lambda: wide.inference(1),
    "pydensecrf.startInference": lambda: wide.startInference(),
}

with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (240 << 20), hard))
for name, door in doors.items():
    try:
        door()
        print(name, "|", "returned")
    except BaseException as error:
        print(name, "|", type(error).__name__, "|", str(error).splitlines()[0])
"""


@pytest.mark.linux
def test_every_door_names_the_bytes():
    done = subprocess.run(
        [sys.executable, "-c", DOORS], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == DOORS.count("lambda")
    wrong = [line for line in lines if "| MemoryError | no memory for an array of " not in line]
    assert not wrong, "\n".join(wrong)
