"""Control groups, and what they tell of the kernel's kills; real ones where they can be had."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.supervised import wait_until
from torchtop.launch.cgroup import Cgroup, hierarchies
from torchtop.launch.oom import MemoryWatch

DELEGATED = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope"
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "35 30 0:30 /docker/abc /sys/fs/cgroup/memory ro shared:15 - cgroup cgroup rw,memory\n"

MakeRoot = Callable[..., Path]


@pytest.fixture
def make_root(tmp_path: Path) -> MakeRoot:
    """A file system with what the kernel says in /proc, and files of cgroups."""

    def make(cgroup: str, mountinfo: str, **files: str) -> Path:
        own = tmp_path / "proc" / "self"
        own.mkdir(parents=True)
        (own / "cgroup").write_text(cgroup)
        (own / "mountinfo").write_text(mountinfo)
        for name, text in files.items():
            put(tmp_path, name, text)
        return tmp_path

    return make


def put(root: Path, name: str, text: str) -> None:
    path = root / "sys/fs/cgroup" / name.replace("__", "/").strip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


EVENTS = "low 0\nhigh 0\nmax 12\noom 1\noom_kill {}\noom_group_kill 0\n"


def test_the_own_group_is_found_where_the_tree_is_mounted(make_root: MakeRoot) -> None:
    root = make_root(f"0::{DELEGATED}\n", "22 1 8:1 / / rw - ext4 /dev/x rw\n" + V2_MOUNT)
    (found,) = hierarchies(root)
    assert found.folder == root / "sys/fs/cgroup" / DELEGATED.lstrip("/")
    assert found.controllers is None


def test_a_group_outside_of_what_is_mounted_is_not_found(make_root: MakeRoot) -> None:
    assert list(hierarchies(make_root("5:memory:/other\n0::/x\n", V1_MOUNT))) == []


def test_kills_are_counted_from_the_beginning_of_the_session(make_root: MakeRoot) -> None:
    # given a group without a memory controller, below one that has counted three kills before
    root = make_root(f"0::{DELEGATED}/leaf\n", V2_MOUNT)
    (root / "sys/fs/cgroup" / DELEGATED.lstrip("/") / "leaf").mkdir(parents=True)
    put(root, f"{DELEGATED}/memory.events", EVENTS.format(3))
    put(root, f"{DELEGATED}/memory.max", "1200000000\n")
    watch = MemoryWatch(root)
    assert watch.look().kills == 0
    assert not watch.look().may_have_killed(77)
    # when the kernel kills
    put(root, f"{DELEGATED}/memory.events", EVENTS.format(4))
    # then that is one
    assert (watch.look().kills, watch.look().limit_bytes) == (1, 1_200_000_000)
    assert watch.look().may_have_killed(77)


def test_version_1_counts_too(make_root: MakeRoot) -> None:
    root = make_root("4:memory:/docker/abc/x\n0::/\n", V1_MOUNT)
    control = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
    put(root, "memory/x/memory.oom_control", control.format(0))
    put(root, "memory/x/memory.limit_in_bytes", "9223372036854771712\n")
    watch = MemoryWatch(root)
    put(root, "memory/x/memory.oom_control", control.format(2))
    assert (watch.look().kills, watch.look().limit_bytes) == (2, None)


def test_the_kernels_log_names_whom_it_killed(make_root: MakeRoot, tmp_path: Path) -> None:
    # given a log that is ours to read, of a machine with trouble in the past
    root = make_root("0::/\n", V2_MOUNT)
    (root / "proc/self/ns").mkdir()
    (root / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    (root / "dev").mkdir()
    log = root / "dev/kmsg"
    log.write_text("3,1,5,-;Out of memory: Killed process 41 (python) total-vm:1kB\n")
    watch = MemoryWatch(root)
    with log.open("a") as file:
        file.write("3,2,9,-;Memory cgroup out of memory: Killed process 42 (python) total-vm:1kB\n")
    # then only what came since counts
    found = watch.look()
    assert found.pids == {42}
    assert found.may_have_killed(42) and not found.may_have_killed(41)
    watch.close()


def test_in_another_pid_namespace_the_log_is_not_believed(make_root: MakeRoot) -> None:
    root = make_root("0::/\n", V2_MOUNT)
    (root / "proc/self/ns").mkdir()
    (root / "proc/self/ns/pid").symlink_to("pid:[4026532000]")
    (root / "dev").mkdir()
    (root / "dev/kmsg").write_text("")
    watch = MemoryWatch(root)
    (root / "dev/kmsg").write_text("Out of memory: Killed process 42 (python)\n")
    assert watch.look().pids == frozenset()


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Cgroup:
    """A real group."""
    made = Cgroup.make(f"test-{os.getpid()}")
    if made is None:
        pytest.skip("no control group can be had here")
    request.addfinalizer(made.remove)
    request.addfinalizer(made.kill)
    return made


def test_nothing_gets_out_of_a_group_and_one_write_ends_it(group: Cgroup) -> None:
    # given a process that has left its session and its parent
    daemon = "(setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $!)"
    entrance = group.entrance()
    assert entrance is not None
    done = subprocess.run(
        ["sh", "-c", daemon],
        preexec_fn=lambda: os.write(entrance, b"0"),
        capture_output=True,
        text=True,
        check=True,
    )
    os.close(entrance)
    assert group.pids() == [int(done.stdout)]
    assert not group.remove()
    # when the group is killed
    assert group.kill()
    # then it is empty and can be removed
    wait_until(lambda: not group.pids(), "the group is empty")
    assert group.remove()


def test_without_one_there_is_none(make_root: MakeRoot) -> None:
    assert Cgroup.make("x", make_root("4:memory:/\n", V1_MOUNT)) is None
    assert list(hierarchies(Path("/nonexistent"))) == []
