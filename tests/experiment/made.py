"""Costs of simulated runs, by the way that real ones take."""

from __future__ import annotations

from diagnose.sim_records import records
from diagnose.simulator import Run
from torchtop.experiment.costs import Costs
from torchtop.experiment.steps import read_steps

WARM_UP = 20


def costs_of_run(run: Run, warm_up: int = WARM_UP) -> Costs:
    """What the steps after the warm-up consist of."""
    return read_steps(records(run), warm_up).costs()
