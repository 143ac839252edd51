"""The light table of kernels for settings agrees with the kernels themselves."""

from dataclasses import fields

from fwcrf.apps.files.settings import KERNELS
from fwcrf.kernels import kernel


def test_settings_know_every_kernel_and_its_fields():
    assert KERNELS.keys() == kernel.KERNELS.keys()
    for kind, names in KERNELS.items():
        made = kernel.KERNELS[kind]()
        assert names == (*made.bandwidths(), "weight")
        assert {*names} <= {field.name for field in fields(made)}
