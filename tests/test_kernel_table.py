"""The light table of kernels for settings agrees with the kernels themselves."""

from dataclasses import fields

from fwcrf.presets import KERNELS, kernel_class


def test_the_table_has_the_fields_of_every_kernel():
    for kind, names in KERNELS.items():
        made = kernel_class(kind)()
        assert names == (*made.bandwidths(), "weight")
        assert {*names} <= {field.name for field in fields(made)}
