"""A script that saves on a signal, with loader workers: a soft stop lets every rank do so."""

from __future__ import annotations

import pytest

from faults.scripts import DDP, LOADING, Start
from torchtop.session.paths import liveness, request_stop

SAVES = (
    DDP
    + LOADING
    + """
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
for number, batch in enumerate(loader):
    train_step()
    number == 2 and up()
    # Ranks are not signalled in the same step: they agree on the last one.
    stop = torch.tensor(float(bool(asked)))
    dist.all_reduce(stop)
    if stop:
        break
torch.save(model.state_dict(), root / f"checkpoint-{rank}.pt")
dist.barrier()
dist.destroy_process_group()
"""
)


@pytest.mark.fault(13, "a soft stop of a script that saves", "every rank has saved")
def test_a_soft_stop_lets_every_rank_save_its_checkpoint(run: Start) -> None:
    session = run(SAVES)
    session.started(2)
    request_stop(session.paths, "soft", "a test")
    events = session.ended()
    # then both have saved by themselves
    for rank in (0, 1):
        saved = session.paths.root / f"checkpoint-{rank}.pt"
        assert saved.exists() and saved.stat().st_size > 500, session.exit
    assert not [e for e in events if e["kind"] == "escalated"]
    assert {(e["rank"], e["code"]) for e in events if e["kind"] == "rank_exit"} == {(0, 0), (1, 0)}
    assert (session.exit["cause"], events[-1]["status"]) == ("stopped", "stopped")
    assert session.living() == []
    assert liveness(session.paths) == "ended"
