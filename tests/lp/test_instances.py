"""Models of the UAI competition whose best labelling is known."""

import json

import numpy as np
import pytest
import shared_data
import torch

import fwcrf


def instance(name):
    found = np.load(shared_data.ROOT / "mrf" / f"{name}.npz")
    pairwise = found["pairwise"] if "pairwise" in found else found["potts_weight"]
    model = fwcrf.SparseMRF(
        torch.from_numpy(found["unary"]).double(),
        torch.from_numpy(found["edges"]).long(),
        torch.from_numpy(pairwise).double(),
        constant=float(found["constant"]),
    )
    return model, json.loads((shared_data.ROOT / "mrf" / "instances.json").read_text())[name]


@shared_data.needs("mrf")
@pytest.mark.parametrize("name", ["Segmentation_13", "Segmentation_14", "Segmentation_18"])
def test_the_bound_proves_the_labels(name):
    model, known = instance(name)
    found = model.solve("lp-trw", 20)
    assert float(found.bound) == pytest.approx(known["best_energy"], abs=1e-6)
    assert float(found.energy) == pytest.approx(known["best_energy"], abs=1e-6)


@shared_data.needs("mrf")
def test_the_relaxation_of_a_spin_glass_is_not_tight():
    model, known = instance("Grids_26")
    found = model.solve("lp-bethe", 2)
    assert float(found.bound) < known["best_energy"] - 100
    assert float(found.energy) >= known["best_energy"] - 1e-6
    meshi = model.solve("lp-meshi", 100, weight=10.0)
    assert float(meshi.bound) <= float(found.bound) + 1e-6
