import hypothesis
import hypothesis.strategies as st
import pytest

import fwcrf
from fwcrf.apps.files import FileError
from fwcrf.apps.files.settings import Settings, read_settings, write_settings
from fwcrf.kernels import Spatial

POSITIVE = st.floats(1e-3, 1e3)
SETTINGS = st.builds(
    Settings,
    solver=st.builds(lambda weight: {"name": "efw", "weight": weight}, POSITIVE),
    num_steps=st.integers(0, 50),
    kernels=st.lists(
        st.one_of(
            st.fixed_dictionaries({"kind": st.just("spatial"), "xy": POSITIVE, "weight": POSITIVE}),
            st.fixed_dictionaries({"kind": st.just("bilateral"), "xy": POSITIVE, "color": POSITIVE}),
        ),
        max_size=3,
    ),
    compatibility=st.one_of(POSITIVE, st.lists(POSITIVE, min_size=2, max_size=2)),
    rounding=st.sampled_from(["nearest", "bcd"]),
)


@hypothesis.given(SETTINGS)
def test_what_is_written_is_read(tmp_path_factory, settings):
    path = tmp_path_factory.mktemp("settings") / "a.yaml"
    write_settings(path, settings, "found by\nlooking")
    assert path.read_text().startswith("# found by\n# looking\n")
    assert read_settings(path).mapping() == settings.mapping()
    assert read_settings(path).fingerprint() == settings.fingerprint()
    settings.arguments()


def test_fingerprints_tell_settings_apart():
    some = [Settings(), Settings(num_steps=9), Settings(solver={"name": "mf"}), Settings(kernels=())]
    assert len({s.fingerprint() for s in some} | {Settings().fingerprint(version="2")}) == 5
    assert Settings.of({"num_steps": 5}).fingerprint() == Settings().fingerprint()


def test_defaults_are_those_of_the_library():
    default = fwcrf.presets.get("default").arguments()
    assert Settings().arguments() == {**default, "rounding": "nearest"}


def test_presets_and_kernels_of_a_file_are_as_in_the_library():
    paper = fwcrf.presets.get("paper").arguments()
    assert Settings.of({"preset": "paper"}).arguments() == {**paper, "rounding": "nearest"}
    own = Settings.of({"kernels": [{"kind": "spatial", "xy": 2}]})
    assert (own.num_steps, own.balance, own.arguments()["kernels"]) == (10, 0.0, (Spatial(2),))
    with pytest.raises(FileError, match=r"preset='papers' is not known.*Did you mean 'paper'"):
        Settings.of({"preset": "papers"})


def test_json_and_numbers_that_yaml_takes_for_words(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"solver": {"name": "l2fw", "weight": 1e-3}, "num_steps": 3}')
    assert read_settings(path).solver == {"name": "l2fw", "weight": 0.001}
    path.write_text("")
    assert read_settings(path) == Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps: 3", "has 'steps'; expected any of preset, solver, num_steps, kernels"),
        ("- 1", "holds a list; expected names and values"),
        ("num_steps: many", "num_steps is 'many'; expected a whole number"),
        ("num_steps: -1", "expected a whole number, 0 or more"),
        ("num_steps: true", "expected a whole number"),
        ("kernels: spatial", "expected a list"),
        ("kernels: [{xy: 3}]", "expected kind: bilateral, or kind: spatial"),
        ("kernels: [{kind: spatial, color: 3}]", "a spatial kernel has 'color'; expected xy, weight"),
        ("solver: {weight: 3}", "expected a name"),
        ("compatibility: .nan", "expected finite numbers"),
        ("compatibility: 2020-01-01", "expected numbers, words and lists"),
        ("kernels: [{kind: spatial, xy: -1}]", "a spatial kernel has xy -1; expected positive numbers"),
        ("kernels: [{kind: bilateral, xy: [3, 0]}]", "a bilateral kernel has xy 0; expected positive"),
        ("a: [", "is not YAML"),
        ("a: !!python/object/apply:os.system [ls]", "is not YAML"),
        ("a: " + "[" * 5000, "nested more than 32 deep"),
        ("#" * (1 << 21), "larger than"),
    ],
)
def test_mistakes_are_explained(tmp_path, text, said):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(FileError, match=said):
        read_settings(tmp_path / "a.yaml")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileError, match="cannot be read: No such file"):
        read_settings(tmp_path / "a.yaml")
