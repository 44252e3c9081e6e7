"""The record schema: every file of a session directory, with units, in one place.

Stdlib only and importable on Python 3.8: this module is staged into the training process.

A session directory holds JSON Lines files, each with one writer, append-only, one ``os.write`` a
record. Every record has ``kind``, ``seq`` (0, 1, 2... within the file) and ``mono_ns``
(CLOCK_MONOTONIC nanoseconds of that host). The first record of each file is a ``header``. Readers
take only newline-ended lines, count bad ones, and ignore fields that they do not know. A line that
begins with ``~`` stands where records were given up, and is passed over. A missing or
non-finite number is null. Durations are integer microseconds (``_us``) in columns that repeat a
step, float milliseconds (``_ms``) in analyses, seconds (``_s``) elsewhere. Shares are 0..1, and
``_percent`` is 0..100.

``header`` (every file)
    role (rank|process|supervisor|sampler|analyst), schema, wall_s (Unix time at mono_ns),
    boot_id, host, pid, pid_start_ticks (field 22 of /proc/PID/stat), plus what the role adds.

``ranks/<rank>-<attempt>-<pid>.process.jsonl`` (written by rank.py from its first moment)
    header: rank, local_rank, world_size, attempt, argv, python (version string)
    ``torch``      version, cuda (that it was built for, or null): the script has imported torch
                   and the probe is armed
    ``exception``  type, message, traceback (text), mono_ns of the raise as rank.py saw it
    ``exit``       code (int; SystemExit code, 1 after an exception)
    ``probe``      disabled: why the probe took itself out. Here because it may have come to no
                   file of its own

``ranks/<rank>-<attempt>-<pid>.jsonl`` (the probe; opened at the first backward)
    header: rank, local_rank, world_size, attempt, python, torch, cuda (null on CPU), nccl (null),
        cudnn (null), backend (nccl|gloo|... or null), device {type (cuda|cpu), index, name, uuid}
        where uuid is NVML's "GPU-..." form, or null on a CPU; below a command of the user's also
        first_attempt (the attempt with which its launch began: one launch after the other is told
        apart by it, and the last one counts; see `torchtop.session.launches`)
    ``facts``      subject "loader": loader (0, 1... in order of first use), workers,
                   prefetch_factor, pin_memory, persistent_workers, batch_size, batches (length or
                   null), dataset (class name), worker_pids, first_batch {bytes (of tensors
                   on the host), device_bytes (of those on a device already), pinned, samples,
                   tokens or null}, train (whether backward passes follow its batches; false: it
                   feeds evaluation), elsewhere (true: another thread fetches them)
                   subject "ddp": parameters (count), gradient_bytes, bucket_cap_bytes, buckets
                   (sizes in bytes, or null), comm_hook (the name of the script's own, or null),
                   gradient_as_bucket_view, broadcast_buffers, buffer_bytes,
                   find_unused_parameters, static_graph
                   subject "precision": matmul_dtypes (of the matrix products and convolutions of
                   the last layers, as ["bfloat16"]; null where none was seen), parameter_dtypes
                   (or null), autocast (dtype; false: none; null: not known),
                   float32_matmul_precision (highest|high|medium or null), matmul_tf32, cudnn_tf32,
                   cudnn_benchmark, deterministic (each a bool, or null); or error: why all that
                   could not be told
                   subject "compile": model, step (whether it, or the code around its backward, is
                   compiled), frames, graphs, graph_breaks (counts so far)
                   "ddp", "precision" and "compile" come again, whole, when something has changed
                   subject "optimizer": optimizer (class name), foreach, fused, parameter_groups
                   subject "collectives": from_step, to_step, count (collective operations that
                   the rank has begun in between in all its groups, or null where not known)
                   subject "script": key/value pairs told by a built-in workload, such as
                   synthetic_data (true: the files were made up), total_steps
    ``steps``      columns of equal length over the recorded steps (`is_recorded`), integers:
                   step (0, 1, ... since the first backward), end_ns (host monotonic ns when the
                   marker that ends the step was enqueued), host_us (host time between the
                   step-ending markers), data_us, forward_us, backward_us, exposed_comm_us,
                   pre_optimizer_us, optimizer_us, other_us (the phases on the device's clock; they
                   tile the step: their sum is its duration; and unknown_us, with unknown_host_us
                   and lag_unknown_us, where not all is 0), data_host_us ... other_host_us (the
                   same segments on the host's clock: data_host_us is the time inside next()),
                   lag_data_us ... lag_other_us (how far the device ran behind the host at
                   the end of each phase: backward at the end of its compute, exposed_comm at the
                   return of backward; of the last such segment where a step has several; null
                   where unknown; 0 on CPU), lag_width_us (uncertainty of all), samples, tokens
                   (null where unknown). Plus ``stride`` (k of `is_recorded`), and ``own``, where
                   the script has phases of its own: {name: [microseconds on the device's clock]};
                   each lies within the phases above and is part of them
    ``totals``     sums over all steps of [from_step, to_step): steps, host_us, the phase columns
                   above, data_host_us, samples, tokens; phase_steps (steps behind the phases),
                   and own_us {name: sum} of the script's own phases. Of a rank that a signal has
                   ended, the steps of its last half second are missing
    ``beat``       twice a second: marker (last passed, see MARKERS), marker_ns, step, ready
                   (batches waiting in the loader's queue, or null), and loader_at [epochs begun
                   before this one, batches of it so far, batches of a whole one or null] of the
                   loader that feeds training, where there is one
    ``pause``      what (gc|save|eval), step, start_ns, duration_us (host time): something that is
                   not training held the training thread up; save is torch.save, eval the time from
                   the first to the last evaluation batch of a stretch; gc only of 1 ms and more
    ``inspected``  one step was looked at for calls that make the host wait for the device. id,
                   requested_by (as in the request), step (or null), problem (why nothing was
                   looked at, or null), calls [{file, line, function, text (of the source; or
                   null), count, call (of a function that torch does not warn of, as
                   "torch.cuda.synchronize"; else null), library {file, line, function, text} (the
                   innermost line of an installed package within that call, or null)}]
    ``scalars``    step, values {name: number or null}. Beside what the script logs: "loss
                   (backward)", what the first backward pass of a step began with; "loss
                   (backward, scaled)" where a factor of a GradScaler is in it
    ``not_finite`` step, name, value (nan|inf|-inf): a scalar whose name tells that it is a loss
                   was finite and is no more
    ``annotation`` step, text: from the script
    ``memory``     allocated_bytes, reserved_bytes, peak_bytes, alloc_retries (CUDA only)
    ``probe``      cost_us (host time spent in the probe since the last), steps, cost_share,
                   dropped (steps lost), disabled (null, or why the probe took itself out),
                   detail (1: every step has full markers; 0 < share < 1: that share of them)

``ranks/inspect.json`` (each node's supervisor, atomically; ranks look for a new one)
    id, requested_by: every rank is to inspect one step

``nodes/<host>/events.jsonl`` (that node's supervisor)
    header: session, command (argv of torchrun), cwd, device, nproc, cgroup (folder of the control
        group that holds the run, or null)
    ``process``    role (sampler|analyst|agent|rank), process_pid, pid_start_ticks, rank or null
    ``stop``       requested_by, mode (soft|stop|kill), why (user|duration|steps)
    ``disk``       free_bytes, telemetry (bool: whether records of ranks, sampler and analyst are
                   still written), level (ok|low|full): when the level has changed
    ``log_cut``    file (in the session directory), from_byte, to_byte: a log or a file of records
                   took too much of the disk, and this part was given back; it reads as zero bytes
    ``inspect``    requested_by, id: the ranks are told to inspect a step
    ``stacks``     requested_by, ranks [{rank, file (in the session directory), offset}]: each of
                   these ranks was asked for its Python stacks, and writes them (text, by
                   faulthandler) into its file from that offset in bytes on; silent [ranks that
                   live and cannot be asked]
    ``escalated``  stage (soft|term|kill), waited_s
    ``leftover``   process_pid, state, name: what could not be ended
    ``gpu_held``   process_pids, waited_s: ended processes that a GPU's process list still shows
    ``rank_exit``  rank, process_pid, code (int or null), signal (name or null)
    ``hint``       what (alone|not_training|not_entered|own_ranks), message (a sentence): something
                   about what is run that a user would not see; each once
    ``exit``       cause (see CAUSES), rank (the first to fail, or null), code, signal, message,
                   traceback (text or null), log_tail (lines)
    ``end``        status (done|failed|stopped); nothing follows

``nodes/<host>/devices.jsonl`` (that node's sampler; of what is older than two hours one tick in 20
    to 30 s, with its processes, and those at which what throttles a GPU, or whether it tells, has
    changed as it had not in the 20 s before)
    header: driver (version or null), nvml_error (why there are no GPUs, or null), gpus [{index,
        uuid, name, memory_total_bytes, power_limit_w, sm_clock_max_mhz, gpm (bool), nvlink_links,
        pci}], cpu_count, memory_total_bytes, tick_s
    ``tick``       once a second. gpus {metric: [a value or null a GPU, in the header's order]},
                   with metrics util_percent, memory_used_bytes, power_w, temperature_c,
                   sm_clock_mhz, throttle (list of reason names, [] when none), sm_active,
                   sm_occupancy, tensor_active, dram_active (0..1), nvlink_tx_bytes_per_s,
                   nvlink_rx_bytes_per_s, pcie_tx_bytes_per_s, pcie_rx_bytes_per_s, energy_j
                   (cumulative; null on most ticks). host {cpu_percent, cpu_percent_per_core,
                   load_1m, memory_used_bytes, disk_read_bytes_per_s, disk_write_bytes_per_s,
                   net_rx_bytes_per_s, net_tx_bytes_per_s}
    ``processes``  every 5 s: gpus [[{process_pid, used_bytes, name}] a GPU, or null where the
                   driver does not say], and ranks [{rank, process_pid, cpu_percent, rss_bytes,
                   workers [{process_pid, cpu_percent, rss_bytes}]}] (100 % = one core)

``analysis.jsonl`` (the analyst of node 0, once a second; one in 20 s of what is older than two
    hours, and those that changed a verdict or a finding)
    ``analysis``   step (last step that all ranks finished), steps (count since the start),
                   window {from_step, to_step, steps (all), recorded, seconds} or null,
                   warming_up (bool; false once the verdict is HUNG, which needs no window),
                   step_ms {mean, p50, p95, p99, max} of the window,
                   throughput {samples_per_s, tokens_per_s, steps_per_s} summed over ranks,
                   phases {phase: {ms, share}}: the frontier across ranks; ms sum to the step
                   (with a phase "unknown" where there is some such time; so in what follows),
                   ranks [{rank, step, phases {phase: ms}, step_ms, host_step_ms, wait_ms, lag_ms,
                   data_host_ms, ready, marker, marker_age_s}],
                   verdict (see below), findings [verdicts: what the devices say beside it:
                   THROTTLED, CONTENTION, MEMORY PRESSURE; and NOT FINITE, of a loss],
                   candidates [{kind, share, rank, phase}],
                   recent_step_ms (steps finished since the last record, at most 200, for
                   drawing), scalars {name: last value}, progress {step, total_steps or null,
                   eta_s or null, epoch (0, 1..., or null), epoch_batch, epoch_batches,
                   epoch_eta_s (till the end of the epoch)},
                   own_phases {name: {ms, share}}: the script's own, mean of the ranks,
                   first_attempt (of the launch that it is of, as in the ranks' headers),
                   probe {cost_share, dropped, disabled}
    verdict        kind (VERDICTS), severity (ok|note|warn|critical|unknown), share, rank, phase,
                   cause (what is behind it, in a word, or null),
                   from_step, to_step, since_s (how long it has stood), gain_bound (upper bound of
                   the speed-up: 1.25 is 25 % faster; null), headline (one sentence),
                   evidence [sentences with numbers], advice [sentences]

``history.jsonl`` (the analyst; one a minute and at the end; everything sums)
    ``minute``     from_ns, to_ns, from_step, to_step, steps (all), warmup_steps, step_us (sum),
                   recorded, phases_us {phase: frontier sum over recorded}, samples, tokens (of
                   all steps: by the totals where all ranks have them, else by the recorded ones),
                   latency {bucket: count} (`latency_bucket`; recorded steps), step_us_max,
                   ranks [{rank, recorded, phases_us {phase: sum}, host_us, wait_us, lag_us,
                   lag_steps}], gpus [{index, samples, util_percent, sm_active, power_w (sums),
                   sm_active_samples (none of them from before the first counted step, once there
                   is one), memory_peak_bytes, energy_j (last)}], verdicts [{kind,
                   rank, phase, cause, severity, share, seconds, from_step, to_step, gain_bound,
                   headline, evidence, advice}], findings [the same], scalars {name: {first, last,
                   min}}, own_us {name: sum} and own_steps (measured steps of the lowest rank) of
                   the script's own phases. Warm-up steps are counted in warmup_steps alone.
                   first_attempt (of the launch that it is of, as in the ranks' headers; a minute
                   ends where another launch begins)

``session.json`` (first supervisor, once)
    schema, id, name, workload, source (builtin|file|script|module|command), argv (the script and
    its arguments), options {}, device (cuda|cpu), nproc, gpu_uuids (those asked for; [] leaves the
    choice to CUDA), warnings [what may go wrong all the same], python (interpreter), cwd,
    started_at (ISO 8601, UTC), wall_s, host, ephemeral (to be removed when it was shown),
    steps (asked for, or null), duration_s (or null), thresholds {name: value} (those that differ
    from the defaults), versions {torchtop, python, torch, cuda, driver},
    sweep {id, cell} (absent unless a sweep started it; see `torchtop.session.sweeps`)
"""

from __future__ import annotations

import math
from typing import Any, Dict, List

from .appender import SCHEMA, Appender, Record, boot_id, encode, finite, start_ticks

__all__ = [
    "CAUSES",
    "GIVEN_BACK",
    "HOST_COLUMNS",
    "INSPECT_FILE",
    "LAG_COLUMNS",
    "MARKERS",
    "PHASES",
    "PHASE_COLUMNS",
    "SCHEMA",
    "VERDICTS",
    "Appender",
    "Record",
    "boot_id",
    "bucket_microseconds",
    "columns",
    "encode",
    "finite",
    "is_recorded",
    "latency_bucket",
    "start_ticks",
]

GIVEN_BACK = b"~"
"""What a line begins with that has taken the place of records."""

PHASES = ("data", "forward", "backward", "exposed_comm", "pre_optimizer", "optimizer", "other")
"""Parts of a step, in the order of DESIGN section 2."""

UNKNOWN = "unknown"
"""A further part, where the probe cannot tell: told only of steps that have some of it."""

PHASE_COLUMNS = tuple(phase + "_us" for phase in PHASES)
HOST_COLUMNS = tuple(phase + "_host_us" for phase in PHASES)
LAG_COLUMNS = tuple("lag_" + phase + "_us" for phase in PHASES)

MARKERS = {
    "D0": "data",
    "D1": "forward",
    "B0": "backward",
    "BC": "exposed_comm",
    "B1": "pre_optimizer",
    "O0": "optimizer",
    "O1": "other",
}
"""Marker to the phase that a rank is in after it has passed the marker."""

CAUSES = (
    "completed",
    "stopped",
    "duration",
    "steps",
    "exception",
    "signal",
    "exit_code",
    "out_of_memory",  # of a GPU
    "host_out_of_memory",
    "disk_full",
    "loader_killed",
    "timeout",  # of a collective operation
    "launcher_killed",
    "launch_failed",
    "lost",
)

VERDICTS = (
    "DATA",
    "COMM",
    "STRAGGLER",
    "LAUNCH",
    "SYNC",
    "H2D",
    "OPTIMIZER",
    "PERIODIC",
    "MEMORY PRESSURE",
    "THROTTLED",
    "CONTENTION",
    "HUNG",
    "NOT FINITE",
    "COMPUTE-BOUND",
    "UNDECIDED",
)

INSPECT_FILE = "inspect.json"
"""In the ``ranks`` folder: the last request to inspect a step."""

_HASH = 2654435761
_LATENCY_BASE = 1.01


def is_recorded(step: int, stride: int) -> bool:
    """Whether a step is kept when one in `stride` (a power of two) is.

    The same on all ranks without talking, free of any beat with the number of loader workers, and
    nested: the steps kept at a larger stride are among those kept at a smaller one.
    """
    return step * _HASH % 2**32 < 2**32 // stride


def latency_bucket(microseconds: float) -> int:
    """The histogram bucket of a step latency; buckets grow by 1 %."""
    return round(math.log(max(1.0, microseconds)) / math.log(_LATENCY_BASE))


def bucket_microseconds(bucket: int) -> float:
    """The latency in microseconds that a bucket stands for."""
    return float(_LATENCY_BASE**bucket)


def columns(rows: List[Dict[str, Any]], names: List[str]) -> Dict[str, List[Any]]:
    """Rows as columns, for a ``steps`` record."""
    return {name: [row.get(name) for row in rows] for name in names}
