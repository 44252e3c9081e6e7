"""Whether somebody trains on the same GPUs already: allowed, but both will be slower."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from torchtop.launch.spec import LaunchSpec
from torchtop.session.paths import SessionPaths, describe, is_running, list_sessions


def shared_gpus(spec: LaunchSpec) -> Iterator[str]:
    """A line for each session of this host that runs on GPUs of a launch.

    Args:
        spec: the launch, whose own session is not there yet.
    """
    wanted = set(spec.gpu_uuids)
    if spec.device != "cuda" or not wanted:
        return
    for paths in list_sessions():
        if is_running(paths):
            shared = len(wanted & _gpus_of(paths))
            if shared:
                some = "the same GPU" if len(wanted) == 1 else f"{shared} of these GPUs"
                yield (
                    f"{paths.id} runs on {some}: both will be slower; "
                    f"choose others with --gpu-ids, or end it: torchtop stop {paths.id}"
                )


def _gpus_of(paths: SessionPaths) -> set[str]:
    meta = describe(paths)
    uuids = meta.get("gpu_uuids")
    if meta.get("host") != socket.gethostname() or not isinstance(uuids, list):
        return set()
    return {uuid for uuid in uuids if isinstance(uuid, str)}
