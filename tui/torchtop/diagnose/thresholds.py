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

    compete: float = 0.12
    """Own choice: ranks that share busy cores hold one another up this much by taking turns; two
    healthy ranks on two cores that others used as well: 11 %."""

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

    # --- waits of the host ----------------------------------------------------------------------
    sync_issue_factor: float = 1.5
    """Own choice: forward and backward issue about as many kernels, so a host that takes this much
    longer for one than for the other does more than issue them."""
    sync_device_part: float = 0.5
    """Own choice: where the device gets through less than half of a host's time between phases,
    the host waits for it; where more, it is held up by something else."""
    sync_steps: float = 0.70
    """Own choice: a wait in this part of the steps is told to a run that it does not hold back."""

    # --- copies to the device -------------------------------------------------------------------
    forward_part: float = 0.55
    """Computing forward takes half to two thirds of the time of backward (two matrix products for
    one; on H200 0.59 to 0.62 for convolutions): what forward takes beyond is something else."""
    pageable_slow_gb_s: float = 4.0
    """Own choice: a copy from memory that is not pinned, which one thread stages, moves at least
    this..."""
    pageable_fast_gb_s: float = 20.0
    """...and at most this."""
    pinned_slow_gb_s: float = 22.0
    """PCIe 4.0 x16, less protocol..."""
    pinned_fast_gb_s: float = 55.0
    """...and 5.0 x16."""
    copy_seen: float = 0.5
    """Own choice: where PCIe carries less than this part of the batches' bytes, they are on the
    device already..."""
    launches_gb_s: float = 0.15
    """...beside what launches take: 65,000 a second on H200 brought 0.15 GB/s to the GPU."""

    # --- communication --------------------------------------------------------------------------
    comm_slows: float = 0.10
    """Own choice: kernels that reduce gradients take multiprocessors and memory bandwidth from the
    backward that they overlap with; by this much at the most, which goes into the upper bound."""
    gloo_gb_s: float = 1.0
    """Own choice: what processes of one host exchange through gloo at the least. Where all cores
    are busy, a wait beyond that is for a turn, not for gradients."""
    nvlink_gb_s: float = 25.0
    """One direction of one link, NVLink 2 to 4 (V100, A100, H100, H200)..."""
    nvlink5_gb_s: float = 50.0
    """...and NVLink 5 (B200, GB200, B300)."""
    link_unused: float = 0.05
    """Own choice: a link that carries less than this part of the gradients does not carry them."""
    link_compressed: float = 0.75
    """Own choice: below this part of them, they are sent compressed (bf16 halves them)."""
    copy_back_gb_s: float = 3000.0
    """Own choice: between the memory bandwidths of A100 (2 TB/s) and H200 (4.8 TB/s)."""
    copy_back_part: float = 0.10
    """Own choice: copying gradients out of buckets is worth advice from this part of the wait."""
    few_buckets_mb: float = 10.0
    """Own choice: gradients beyond this in a single bucket cannot overlap with backward."""
    small_message_kb: float = 256.0
    """Own choice: gradients below this take as long as their latency, not as their size."""

    # --- pauses that recur ------------------------------------------------------------------------
    periodic_memory_s: float = 1800.0
    """Own choice: evaluations and checkpoints may be minutes apart; two of them are needed, and
    three garbage collections, which a script also asks for when it has ended something..."""
    periodic_over: float = 2.5
    """...and after this many periods without another they are over."""
    periodic_spread: float = 0.2
    """Own choice: how far, in periods, nameless pauses may stray and still be called regular."""

    # --- steps that are not recorded --------------------------------------------------------------
    sampled_off: float = 0.03
    """Own choice: recorded steps that differ this much from all of them are no fair sample: the
    mean over a window is known to about 1 %..."""
    sampled_errors: float = 3.0
    """...by chance, if within three standard errors..."""
    sampled_data: float = 0.9
    """...which is the wait for data where that makes up this part of what steps differ by."""

    # --- contradictions -----------------------------------------------------------------------
    compute_dominates: float = 0.80
    """TraceML calls 90 % compute-bound; 80 % leaves room for three silent candidates."""
    util_idle_percent: float = 50.0
    """torch-tb-profiler: GPU utilization below 50 % contradicts compute-bound."""
    util_busy_percent: float = 95.0
    """Own choice: a GPU that is busy this much does not starve (launch-bound ones: 47..66 %)."""
    short_kernel_sms: float = 0.1
    """Own choice: a GPU that is idle more than not and busy with this part of its SMs at most runs
    kernels that end as soon as they begin, or a spinning one."""
    short_kernel_part: float = 0.69
    """How much of its utilization is work then: 150 small layers kept an H200 busy for 4.95 ms of a
    step when issued one by one, and for 3.43 ms in a CUDA graph (SM activity: 0.248 ms in both)."""
    host_wait_part: float = 0.5
    """A data stall cannot exceed the host's wait in next(); half leaves room for rounding."""
    hung_s: float = 8.0
    """Own choice: ranks that pass no marker for this long hang..."""
    hung_steps: float = 20.0
    """...if it is also this many mean steps, for runs whose steps take seconds..."""
    hung_pause: float = 2.0
    """...and this many times their longest pause so far."""
    unmeasured_s: float = 30.0
    """Own choice: a run that moves on without a step for this long is told; and a rank that stands
    still between steps may be saving for as long."""
    hung_startup_s: float = 120.0
    """Own choice: while the first steps run, which may compile for minutes."""

    # --- facts for evidence and advice ----------------------------------------------------------
    host_busy_percent: float = 85.0
    """Own choice: a host above this has no core to give to more workers."""
    worker_waits_percent: float = 40.0
    """Own choice: one below this waits for something else than its core."""
    head_of_line: float = 0.40
    """Own choice: with this part of the queue ready and training waiting still, the batch that is
    next in order is late. Workers that are too few and in step leave (W-1)/2 of 2 W: under 25 %."""
    burst: float = 0.75
    """Own choice: stalls are bursty when a quarter of the steps has this part of them."""
    burst_steady: float = 0.2
    """Own choice: and they recur where each half of a window has at least this part of them."""
    disk_busy_mb_s: float = 20.0
    """Own choice: a disk that reads this much is worth naming."""
    optimizer_share: float = 0.10
    """Own choice: an optimizer worth advice; foreach=False took 29 % on H200."""
    dram_gb_s: float = 4800.0
    """Memory bandwidth of H200; with a slower GPU an optimizer's least time is told too short, so
    that its gain stays an upper bound."""
    dram_cpu_gb_s: float = 50.0
    """Own choice: what a few threads get from a server's memory."""
    tensor_idle: float = 0.05
    """Own choice: tensor cores below this are hardly used (fp32 ResNet-50: 0.7 %)..."""
    dram_busy: float = 0.60
    """Own choice: ...and memory above this is what bounds the kernels."""
    many_graphs: int = 8
    """torch.compile itself gives up on a function after 8 graphs (torch._dynamo.config,
    cache_size_limit)."""
    cores_idle: float = 0.50
    """Own choice: a CPU run that leaves half of the cores idle has too few threads."""

    # --- devices ----------------------------------------------------------------------------------
    device_ticks: int = 3
    """Own choice: fewer of a sampler's ticks than this say nothing about a window: in a single one
    the clocks of two busy H200s at their power limit were 11 % apart."""
    throttle_ticks: float = 0.50
    """Own choice: a clock that is held down in half of a window's ticks is throttled..."""
    throttle_held: float = 0.25
    """...and stays so down to this."""
    power_cap_below: float = 0.60
    """Own choice: at its power limit an H200 runs dense bf16 work at 73 % of its highest clock.
    That is its design; far below, somebody has lowered the limit."""
    shared_stretch: float = 1.3
    """Own choice: on a GPU that is shared, the same work that takes this many times longer than at
    its fastest waits for the others' turns; on H200: 2.6, and 1.00 to 1.02 alone..."""
    shared_stretch_held: float = 1.15
    """...and still does down to this."""
    explains: float = 0.50
    """Own choice: a slower clock explains a straggler if it accounts for half of its excess."""
    memory_falls: int = 3
    """Own choice: an allocator that gives memory back this often in a window is made to..."""
    memory_fall: float = 0.02
    """...where it is this part of what it holds."""
    retries_s: float = 60.0
    """Own choice: allocator retries of the last minute are news..."""
    retries_steps: float = 0.05
    """...and hold a run back where one step in twenty has one."""
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
