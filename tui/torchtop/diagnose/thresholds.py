"""Every number that a verdict depends on, in one table, each with where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Thresholds:
    """Limits of the diagnosis. Shares are 0..1 of the step.

    "Own choice" marks numbers that no source gives; the comment says what they guard.
    """

    # --- severity -----------------------------------------------------------------------------
    note: float = 0.05
    """XProf: input-bound from 5 %; torch-tb-profiler: DataLoader above 5 %."""
    warn: float = 0.10
    """TraceML: warning from 10 %; torch-tb-profiler: communication above 10 %."""
    critical: float = 0.20
    """TraceML: critical from 20 %; XProf: highly input-bound from 20 %."""
    leave_note: float = 0.04
    """Own choice: a note ends this low, so that it does not blink at 5 %."""
    leave_warn: float = 0.06
    """Own choice: entered at 10 %, left at 6 %, so that 9..11 % does not flap."""
    leave_critical: float = 0.16
    """Own choice: the same for 20 %."""
    tie: float = 0.7
    """Own choice: a second candidate above this part of the best is told as a tie, and does not
    take the headline from a verdict that stands."""

    # --- window -------------------------------------------------------------------------------
    window_steps: int = 20
    """TraceML needs 20 steps for a critical finding; with W loader workers every W-th step
    stalls, and W is rarely above 16."""
    window_s: float = 5.0
    """Own choice: spans several sampler ticks and the slowest bursts of a loader."""
    window_target_s: float = 10.0
    """Own choice: longer windows are steadier, and a change still shows within 10 s."""
    warmup_steps: int = 10
    """DDP's logger synchronises in its first 10 iterations (torch reducer), and cuDNN's
    benchmark, bucket rebuild and lazy loading fall into them."""
    startup_steps: int = 100
    """Own choice: up to here a step of compile length is start-up; later it is the user's."""
    startup_factor: float = 10.0
    """Own choice: a start-up step computes this much longer than the median step..."""
    startup_s: float = 0.5
    """...and at least this long: torch.compile and autotuning take seconds."""
    pause_factor: float = 3.0
    """Attribution notes: steps above 3x the median are told apart (checkpoint, evaluation,
    epoch boundary, garbage collection)..."""
    pause_steps: int = 1200
    """...where they are rare among this many recorded steps: at least a minute."""
    unknown_rows: float = 0.5
    """Own choice: a phase that is null in more steps than this is unknown, not just patchy."""

    # --- stragglers ---------------------------------------------------------------------------
    persistent: float = 0.70
    """Attribution notes: the same rank leads in 70 % of the steps, otherwise it is rotating."""
    group: float = 0.90
    """Own choice: ranks that together lead this much are named together."""
    companion: float = 0.5
    """Own choice: so do ranks that are slow by this part of what the leader is."""

    # --- lag ----------------------------------------------------------------------------------
    lag_zero_us: float = 50.0
    """Launch latency plus the cost of a marker on H200 (9 microseconds), with room; measured
    lag of starved ranks: about 0.1 ms at a 25 ms step."""
    lag_zero_share: float = 0.01
    """Attribution notes: near zero is below max(50 us, 1 % of the step)."""
    lag_ahead_share: float = 0.05
    """Attribution notes: GPU-bound when lag is above 5 % of the step at every marker..."""
    lag_ahead_us: float = 2000.0
    """...or a couple of milliseconds, which outlast any launch, however long the step."""
    lag_width_share: float = 0.05
    """Own choice: an uncertainty above this says nothing about either limit."""
    starved_steps: float = 0.70
    """Own choice: launch-bound when the critical rank is starved in this part of the steps."""
    launch_compute: float = 0.50
    """Own choice: without a GPU's utilization, launch-bound needs this much forward + backward."""
    starved_steps_held: float = 0.50
    """Own choice: a standing launch-bound verdict is left below this."""
    lag_held_factor: float = 2.0
    """Own choice: a standing verdict about lag gives way only this much past its limit."""

    # --- contradictions -----------------------------------------------------------------------
    compute_dominates: float = 0.80
    """TraceML calls 90 % compute-bound; 80 % leaves room for three silent candidates."""
    util_idle_percent: float = 50.0
    """torch-tb-profiler: GPU utilization below 50 % contradicts compute-bound."""
    util_busy_percent: float = 95.0
    """Own choice: a GPU that is busy this much does not starve (launch-bound ones: 47..66 %)."""
    queue_full: float = 0.90
    """Own choice: ready batches at 90 % of the queue contradict a data stall."""
    host_wait_part: float = 0.5
    """A data stall cannot exceed the host's wait in next(); half leaves room for rounding."""
    stalled_s: float = 30.0
    """Own choice: no step for this long, and for `stalled_factor` mean steps, is told..."""
    stalled_factor: float = 20.0
    """...the latter for runs whose steps take seconds."""

    # --- facts for evidence and advice ----------------------------------------------------------
    worker_busy_percent: float = 80.0
    """Own choice: a loader worker above this share of a core has no spare capacity."""
    host_busy_percent: float = 85.0
    """Own choice: a host above this has no core to give to more workers."""
    optimizer_share: float = 0.10
    """Own choice: an optimizer worth advice; foreach=False took 29 % on H200."""
    data_dominates: float = 0.50
    """Own choice: above this, more workers alone are rarely enough."""
    short_epoch_batches: float = 200
    """Own choice: starting workers takes about a second, which epochs this short feel."""
    clock_below: float = 0.90
    """NVRx flags a rank from 0.75 of its peers' speed; clocks are steadier than kernels."""
    loader_share: float = 0.10
    """Own choice: a rank that stalls this much consumes as fast as its loader produces, so the
    step time then is its loader's period."""

    @classmethod
    def from_mapping(cls, values: Mapping[str, float]) -> Thresholds:
        """The table with some numbers replaced.

        Raises:
            ValueError: a name is not in the table, or a value is not a non-negative number.
        """
        known = {field.name: field for field in fields(cls)}
        checked: dict[str, float] = {}
        for name, value in values.items():
            if name not in known:
                raise ValueError(f"there is no threshold {name!r}; known: {', '.join(known)}")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise ValueError(f"threshold {name} must be a number of at least 0, not {value!r}")
            whole = isinstance(known[name].default, int)
            checked[name] = int(value) if whole else value
        return replace(cls(), **checked)  # type: ignore[arg-type]


DEFAULT = Thresholds()
