"""A training script whose weight is the number of steps done, so that a lost step shows."""

TRAIN = """
import json, time
from sbtrain_jobs import join

with join() as run:
    def load(folder):
        global weight
        weight = json.loads((folder / "w.json").read_text())

    def save(folder):
        (folder / "w.json").write_text(json.dumps(weight))

    weight = 0
    start = run.resume(load)
    assert weight == start, (weight, start)
    print(f"rank {run.rank} attempt {run.attempt} starts after step {start}", flush=True)
    for step in run.steps(start=start, save=save):
        weight += 1
        time.sleep(STEP_S)
    run.report(weight=weight)
"""
