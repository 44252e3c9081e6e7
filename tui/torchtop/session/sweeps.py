"""Sweeps on disk: where they lie, and what ``sweep.json`` holds.

A sweep is a table of cells, each measured by one or more sessions. It lies in ``sweeps/<id>/``
beside the sessions, mode 0700:

``plan.json`` (once, when the sweep is made)
    What shall be measured; `torchtop.experiment.plan` reads and writes it.

``runs.jsonl`` (appended, one line a fact; survives a kill)
    ``started``  cell, session: a session of this cell has been started
    ``ended``    cell, session, status, reason, measured: see "run" below

``lock`` (flock)
    Held for as long as a process measures. Whoever wants it to stop leaves a file ``stop``; a
    second time, ``kill``. ``sweep.log`` is what that process said, where it had no terminal.

``sweep.json`` (replaced as a whole after each run; what ``torchtop sweep --json`` prints)
    schema, id, workload, command (words after ``torchtop``, as they would be typed), created_at,
    updated_at (ISO 8601, UTC), status (running|stopped|done: "running" is also left behind by a
    process that was killed), host, device (cuda|cpu),
    settings {steps (measured a run, or null: as many as take `seconds`), seconds, warmup (steps
    left out), repeats (at most), spread (a cell whose runs lie within this share is done early)},
    axes [{name, values}]: what the cells differ in, in the order of the command. name is "gpus",
    "nproc" (ranks on a CPU), an option's name, or "python"; a value is text or a number,
    fixed {name: text}: options that all cells share,
    progress {runs_done, runs_left (at most), eta_s (null: not known yet), session (id of the one
    that runs, or null)},
    cells [cell], notes [sentences: what a reader must know, such as runs on different machines]

    cell
        id (short text, unique in the sweep), label ("2 GPUs, compile=on"), role ("asked", or
        "reference": added by the sweep to explain a loss, not part of the question),
        axes {name: value}: as in `axes`, of this cell; of a reference also batch_per_gpu,
        gpus (devices; of a CPU: ranks), nproc (processes); of a command what was seen, null before;
        parallel (ddp|dp|single, or null),
        options {name: text} (all that are set), python (path of the interpreter),
        status (waiting|running|measured|failed|skipped), settled (bool: no more runs to come),
        reason (why it failed or was skipped, one line; else null),
        runs [run], in the order in which they were made
        batch (samples a step over all devices), batch_per_gpu; null where not known
        samples_per_s, tokens_per_s, step_ms: of the runs' means
            {median, low, high, spread ((high - low) / median; null with one run), runs (count)},
            or null. p50_ms, p95_ms: medians over the runs of the percentiles of a step
        base (id of the cell that the speed-up is against: the same options on the fewest
            devices), speedup, ideal (devices / devices of the base), efficiency (speedup / ideal);
            null where the base has not been measured
        relative (samples_per_s / that of the first cell that was asked for and measured, or null)
        verdict {kind, severity, share, rank, phase, headline, seconds (that it stood: 0 of an
            UNDECIDED of a run that was too short for a verdict)} or null: of the run whose
            throughput is the median
        phases {phase: ms} (the frontier, summing to step_ms; mean over the runs), or {}
        energy_j_per_1000_samples (of the GPUs in use, from their power during the measured steps),
        power_w (the same GPUs together), memory_peak_bytes (the worst rank),
        first_steps_s (what the warm-up took beyond the same steps at full speed: compilation,
            autotuning, start of workers); each null where not known
        versions {python, torch, cuda, cudnn, nccl, driver, gpu (name), compile (bool: torch.compile
            is there; null: not known)}
        training_loss (last; mean over the runs), or null
        loss: why it is slower than ideal (below), or null for a base, or where nothing is known

    run
        session (id), status (done|failed|stopped|lost), reason (one line or null), host,
        started_at, wall_s, measured (null unless it is done): steps, samples_per_s, tokens_per_s,
        step_ms, p50_ms, p95_ms, power_w, energy_j_per_1000_samples, memory_peak_bytes,
        first_steps_s, training_loss, batch, world_size (ranks that were seen), verdict, phases,
        versions, costs (what the accounting needs; see `torchtop.experiment.costs`)

    loss (`torchtop.experiment.accounting`)
        base, reference (ids of cells; reference is null where it was not measured),
        ideal_samples_per_s, measured_samples_per_s, lost_points (percentage points of the ideal
        throughput), parts [{key, label, points, ms, why}] in the order in which they are drawn;
        their points sum to lost_points and a negative part is a gain. ms is the time a step that
        goes to it. Keys: exposed_comm, straggler, data, small_batch, launch, comm_beside (backward
        slowed by the communication that overlaps with it), replication (parallel=dp), shared_cores
        (ranks on one CPU), other

A missing or non-finite number is null, shares are 0..1, durations carry the unit in the name.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchtop.session.locks import is_locked
from torchtop.session.paths import SessionError, home, private_dir, read_json, safe_name
from torchtop.session.there import is_file

SCHEMA = 1


@dataclass(frozen=True)
class SweepPaths:
    """The files of one sweep."""

    root: Path

    @property
    def id(self) -> str:
        """The sweep's id, which is its directory's name."""
        return self.root.name

    @property
    def plan(self) -> Path:
        """``plan.json``."""
        return self.root / "plan.json"

    @property
    def runs(self) -> Path:
        """``runs.jsonl``."""
        return self.root / "runs.jsonl"

    @property
    def lock(self) -> Path:
        """Held with flock by the process that measures."""
        return self.root / "lock"

    @property
    def log(self) -> Path:
        """``sweep.log``."""
        return self.root / "sweep.log"

    def request(self, mode: str) -> Path:
        """What asks the process that measures for a ``stop`` or a ``kill``, by being there."""
        return self.root / mode

    @property
    def result(self) -> Path:
        """``sweep.json``."""
        return self.root / "sweep.json"


def sweeps_root() -> Path:
    """The folder that holds the sweeps."""
    return home() / "sweeps"


def new_sweep(workload: str) -> SweepPaths:
    """Make an empty sweep directory; its id begins with the local time.

    Raises:
        SessionError: the state directory cannot be written.
    """
    root = private_dir(sweeps_root())
    stamp = time.strftime("%Y%m%d-%H%M%S")
    paths = SweepPaths(root / f"{stamp}-sweep-{safe_name(workload)}-{secrets.token_hex(2)}")
    private_dir(paths.root)
    return paths


def list_sweeps() -> list[SweepPaths]:
    """All sweeps, newest first."""
    try:
        names = sorted(os.listdir(sweeps_root()), reverse=True)  # noqa: PTH208 - names only
    except OSError:
        return []
    found = [SweepPaths(sweeps_root() / name) for name in names]
    return [paths for paths in found if paths.plan.is_file()]


def find_sweep(reference: str | None) -> SweepPaths:
    """The sweep that a person means: an id, the start of one, or a path; the latest for None.

    Raises:
        SessionError: there is none, or more than one.
    """
    if reference == "":  # a variable of a script that is not set: no sweep is meant by it
        raise SessionError("the sweep's name is empty; see: torchtop sweep --list")
    if reference and "/" in reference:
        path = Path(reference)
        with contextlib.suppress(RuntimeError):  # no such user: it is a name like any other
            path = path.expanduser()
        paths = SweepPaths(path.absolute())
        if is_file(paths.plan) or is_file(paths.result):
            return paths
        raise SessionError(f"{paths.root} is not a sweep's directory (no sweep.json in it)")
    known = list_sweeps()
    none = "there are no sweeps yet; start one with: torchtop sweep WORKLOAD"
    if not reference:
        if known:
            return known[0]
        raise SessionError(none)
    hits = [s for s in known if s.id == reference] or [
        s for s in known if s.id.startswith(reference)
    ]
    if len(hits) == 1:
        return hits[0]
    shown = "".join(c if c.isprintable() else "?" for c in reference)[:200]
    if hits:
        raise SessionError(f"{shown} fits {len(hits)} sweeps; give more of the id")
    told = f"no sweep is called {shown}"
    raise SessionError(f"{told}; see: torchtop sweep --list" if known else f"{told}: {none}")


def read_sweep(paths: SweepPaths) -> dict[str, Any]:
    """``sweep.json``; a sweep that a killed process left as "running" reads as "stopped".

    Raises:
        SessionError: there is none, or it cannot be read.
    """
    result = read_json(paths.result)
    if not isinstance(result, dict) or not isinstance(result.get("cells"), list):
        raise SessionError(f"{paths.result} cannot be read: nothing has been measured, or damaged")
    if result.get("status") == "running" and not is_locked(paths.lock):
        result["status"] = "stopped"
    return result
