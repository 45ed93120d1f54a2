"""`radial study submit` against a real SLURM of one node, started here and ended afterwards."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from radial.cli import main
from radial.study.plan import from_values
from radial.study.store import Store, Watcher, count

pytestmark = pytest.mark.slow

CONF = """ClusterName=radial
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CryptoType=crypto/munge
SlurmctldPort={port}
SlurmdPort={next_port}
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def wait_for(what: Callable[[], object], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    programs = ("munged", "slurmctld", "slurmd", "sbatch", "scancel")
    path = os.environ.get("PATH", "") + ":/usr/sbin"
    if missing := [name for name in programs if shutil.which(name, path=path) is None]:
        pytest.skip(f"no {', '.join(missing)} here: install slurm-wlm and munge")
    if os.geteuid() != 0:
        pytest.skip("only root can start SLURM's daemons")
    place = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # a socket's path must be short
    for name in ("state", "spool"):
        (place / name).mkdir()
    place.chmod(0o700)
    (place / "munge.key").write_bytes(os.urandom(1024))
    (place / "munge.key").chmod(0o400)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    host = socket.gethostname().partition(".")[0]
    conf = CONF.format(
        host=host, place=place, port=port, next_port=port + 1, cpus=os.cpu_count() or 1
    )
    (place / "slurm.conf").write_text(conf)
    monkeypatch.setenv("SLURM_CONF", str(place / "slurm.conf"))
    monkeypatch.setenv("PATH", path)
    munge = [f"--{name}-file={place}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    commands = [
        ["munged", "--force", f"--socket={place}/munge.socket", *munge],
        ["slurmctld", "-c"],
        ["slurmd", "-c"],
    ]
    try:
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"{command[0]} does not start here: {done.stderr.strip()[-200:]}")
        if not wait_for(lambda: "idle" in tell("sinfo", "-h", "-o", "%T"), 30):
            pytest.skip(f"the node does not come up: {tell('sinfo', '-h', '-o', '%T %E')}")
        yield place
    finally:
        for name in ("slurmd.pid", "slurmctld.pid", "munge.pid"):
            if (place / name).is_file():
                subprocess.run(["kill", (place / name).read_text().strip()], check=False)
        time.sleep(1)
        shutil.rmtree(place, ignore_errors=True)


def tell(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_an_array_works_the_plan_and_a_cancelled_task_loses_nothing(
    cluster: Path, tmp_path: Path, folder: Path
) -> None:
    constants = {
        "data": f"folder:{folder}", "backbone": "resnet9-w0.0625", "hidden_dim": 24,
        "output_dim": 12, "batch_size": 16, "epochs": 12,
    }  # fmt: skip
    values = {"name": "slurm", "constants": constants, "heads": ["default"], "score": False}
    store = Store(tmp_path / "study")
    store.create(from_values(values | {"seeds": [0, 1, 2, 3]}))
    submit = ["study", "submit", str(store.path), "--tasks", "2", "--time", "00:10:00"]
    assert main(submit) == 0
    running = lambda: list(store.path.glob("claims/*.1"))  # noqa: E731
    assert wait_for(running, 60), tell("squeue")
    tell("scancel", "1_0")
    watcher = Watcher(store)
    assert wait_for(lambda: not tell("squeue", "-h").strip(), 120), tell("squeue")
    assert main(submit) == 0
    assert wait_for(lambda: not tell("squeue", "-h").strip(), 120), tell("squeue")
    assert count(watcher.look()) == {"done": 4}
    log = "".join(path.read_text() for path in store.path.glob("logs/slurm-*.log"))
    assert log.count(" complete") == 4
    assert main([*submit, "--partition", "none"]) == 2
