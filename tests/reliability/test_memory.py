"""Work that is repeated takes no more memory than before: ``make reliability`` does it ten thousand times."""

import gc

import pytest
import work


@pytest.mark.linux
@pytest.mark.parametrize(("name", "times"), [("refine", 300), ("solve", 100), ("backward", 80)])
def test_constant_memory(name, times, num_threads):
    num_threads(1)
    function = getattr(work, name)
    for seed in range(40):
        function(seed % 4)
    gc.collect()
    before = work.resident()
    for seed in range(times):
        function(seed % 4)
    gc.collect()
    assert work.resident() < 1.02 * before
