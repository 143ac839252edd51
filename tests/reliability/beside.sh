#!/bin/sh
# beside.sh BUILD: the package of src/ beside the module of another build, in BUILD/package, to be put first in PYTHONPATH.
set -e
rm -rf "$1/package" && mkdir -p "$1/package"
cp -r src/fwcrf "$1/package/fwcrf"
cp "$1"/_core*.so "$1/package/fwcrf/"
# An editable installation would come before it.
cat >"$1/package/sitecustomize.py" <<END
import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable")]
END
