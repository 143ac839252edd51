"""Render the conda recipe for every platform and Python: ``render_recipe.py ROOT``. Nothing is built.

Needs py-rattler-build. It fails if the recipe or its variants are not understood, and if a rendered recipe
lacks a compiler, the version or a Python of ``variants.yaml``.
"""

import os
import re
import sys
from pathlib import Path

from rattler_build import JinjaConfig, PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

COMPILERS = {
    "linux-64": "gxx_linux-64",
    "linux-aarch64": "gxx_linux-aarch64",
    "osx-arm64": "clangxx_osx-arm64",
}


def rendered(root, platform):
    """The recipes of one platform, one for each Python, as dictionaries by their variants of Python."""
    where = PlatformConfig(target_platform=platform, build_platform=platform, host_platform=platform)
    variants = VariantConfig.from_file_with_context(
        root / "recipe" / "variants.yaml", JinjaConfig(platform=where)
    )
    recipe = Stage0Recipe.from_file(root / "recipe" / "recipe.yaml")
    made = recipe.render(variants, RenderConfig(platform=where))
    return {dict(one.variant)["python"]: one.recipe.to_dict() for one in made}


def main(root):
    text = (root / "src" / "fwcrf" / "__init__.py").read_text()
    version = os.environ["FWCRF_VERSION"] = re.search(r'^__version__ = "(.*)"$', text, re.M)[1]
    pythons = re.findall(r'"(3\.\d+)\.\*', (root / "recipe" / "variants.yaml").read_text())
    for platform, compiler in COMPILERS.items():
        recipes = rendered(root, platform)
        assert [re.match(r"3\.\d+", each)[0] for each in sorted(recipes)] == pythons, recipes.keys()
        for recipe in recipes.values():
            assert recipe["package"] == {"name": "fwcrf", "version": version}, recipe["package"]
            assert compiler in recipe["requirements"]["build"], recipe["requirements"]["build"]
        print(f"recipe for {platform}, Python {', '.join(pythons)}: renders with {compiler}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
