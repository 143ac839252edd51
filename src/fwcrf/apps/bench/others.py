"""Complete inferences compared with all peers except pydensecrf, on one picture: each takes seconds."""

from __future__ import annotations

from fwcrf.apps.bench import peer, peers, pictures
from fwcrf.apps.bench.report import print_rows, table
from fwcrf.apps.bench.rows import Compared, assemble, spreads
from fwcrf.apps.bench.timing import Case, Plan, measure

LABELS = 21
STEPS = 5


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    name = pictures.names()[1]
    width, height = (
        (pictures.WIDTH // 2, pictures.HEIGHT // 2) if plan.quick else (pictures.WIDTH, pictures.HEIGHT)
    )
    image = pictures.named(name, width, height)
    unary = peer.unary(image, LABELS)
    work = peers.ours(image, unary, STEPS)
    cases = [Case("ours", lambda: work, name, count) for count in plan.threads]
    found = {who: each for who, each in peers.available().items() if who != "pydensecrf"}
    for who, each in found.items():
        theirs = each.inference(image, unary, STEPS)
        cases += [Case(who, lambda w=theirs: w, name, count) for count in plan.threads]
    times = spreads(measure(cases, plan.at_most(1 if plan.quick else 3).rounds))
    what = f"{STEPS} steps of mf, {width} x {height}, {LABELS} labels"
    rows = assemble(times, [Compared(what, "ours", {who: who for who in found})], plan.threads)
    print_rows("Other libraries", rows)
    notes = {who: each.note for who, each in found.items()}
    print("\n" + table(["library", "method"], list(notes.items())))
    return {"rows": rows, "notes": notes}
