"""Dynamic programming on a chain takes memory linear in its length."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, torch
from fwcrf.graphs import SparseMRF

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def solve(n):
    nodes = torch.arange(n)
    unary = torch.rand(n, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    SparseMRF(unary, torch.stack([nodes[:-1], nodes[1:]], -1), 1.0).solve("lp-trw", num_steps=1)

solve(50)
before = peak()
solve(3000)
print(1024 * (peak() - before) / 3000)
"""


@pytest.mark.linux
def test_a_chain_takes_a_few_kilobytes_per_node():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 15_000
