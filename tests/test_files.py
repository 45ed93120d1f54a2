"""Files are whole or not there; what is no regular file is written to, and stays what it is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from radial.files import atomic, check_writable, sweep, write_atomically


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    check_writable(pipe)
    write_atomically(pipe, "through")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    reader.join()
    assert read == ["through"]


def test_a_link_stays_a_link_and_its_file_is_replaced_whole(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    file, link = tmp_path / "there" / "file.json", tmp_path / "link.json"
    link.symlink_to("there/file.json")  # to nothing, at first
    for content in ("first", "second"):
        write_atomically(link, content)
        assert (os.readlink(link), file.read_text()) == ("there/file.json", content)
    with pytest.raises(ZeroDivisionError), atomic(link) as half:
        half.write("third" + str(1 // 0))
    assert file.read_text() == "second"
    assert [path.name for path in file.parent.iterdir()] == ["file.json"]


def test_a_link_to_itself_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        write_atomically(tmp_path / "loop", "x")
    assert (tmp_path / "loop").is_symlink()


def device(name: str, minor: int, folder: Path) -> Path:
    """/dev/NAME; one of our own for who could replace the system's."""
    if not os.access("/dev", os.W_OK):
        return Path("/dev", name)
    node = folder / name
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        node.open("r").close()
    except OSError:
        pytest.skip("devices cannot be made here")
    return node


def test_devices_stay_devices(tmp_path: Path) -> None:
    null, full = device("null", 3, tmp_path), device("full", 7, tmp_path)
    check_writable(null)
    write_atomically(null, "gone")
    assert stat.S_ISCHR(null.stat().st_mode)
    with pytest.raises(OSError, match=r"No space left on device: '.*/full'"):
        write_atomically(full, "x")
    assert stat.S_ISCHR(full.stat().st_mode)


@pytest.mark.parametrize("name", ["stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_in_order_and_in_place(name: str, tmp_path: Path) -> None:
    link = tmp_path / "stdout"  # as /dev/stdout is one, which a mistake might replace
    link.symlink_to("/proc/self/fd/1")
    name = str(link) if name == "stdout" else name
    code = (
        "import sys; from radial.files import *; check_writable(sys.argv[1]);"
        "print('before', flush=True); write_atomically(sys.argv[1], 'it\\n'); print('after')"
    )
    command = [sys.executable, "-c", code, name]
    file = tmp_path / "out.txt"
    with file.open("w") as out:
        subprocess.run(command, stdout=out, check=True)
    assert file.read_text() == "before\nit\nafter\n"
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "before\nit\nafter\n"
    assert link.is_symlink()


def test_only_the_parts_of_dead_writers_are_swept(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from radial.files import atomic\n"
        "with atomic(sys.argv[1]) as file:\n"
        "    file.write('half'); file.flush(); print('written', flush=True); signal.pause()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "file")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        (part,) = tmp_path.iterdir()
        sweep(tmp_path)
        assert part.read_text() == "half"  # its writer lives
        writer.kill()
    (tmp_path / "holiday.part").touch()  # not ours
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.part"]


def test_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    with atomic(tmp_path / "file") as one, atomic(tmp_path / "file") as other:
        one.write("1" * 9)
        other.write("2")
        sweep(tmp_path)
        assert len(list(tmp_path.iterdir())) == 2
    assert (tmp_path / "file").read_text() == "1" * 9  # the last to finish, whole
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
