"""Pidfiles, signals and the way to the background, in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.fixtures.wait import until
from vedur.clock import SYSTEM, Backoff
from vedur.daemon import PidFile, Sent, Signals, is_running, signal_pidfile
from vedur.errors import AlreadyRunning, StateError


def dead_pid() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def run_python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=120
    )


def test_who_releases_it_second_waits_until_the_file_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker of one queue ends while the process is told to."""
    path = tmp_path / "x.pid"
    pidfile = PidFile(str(path))
    pidfile.acquire()
    begun, go_on, unlink = threading.Event(), threading.Event(), Path.unlink

    def slowly(self: Path) -> None:
        begun.set()
        assert go_on.wait(60)
        unlink(self)

    monkeypatch.setattr(Path, "unlink", slowly)
    first, second = (threading.Thread(target=pidfile.release) for _ in range(2))
    first.start()
    assert begun.wait(60)
    second.start()
    second.join(0.2)
    assert second.is_alive()
    go_on.set()
    for thread in (first, second):
        thread.join(60)
    assert not path.exists()


def test_pidfile_holds_the_pid_and_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "x.pid"
    with PidFile(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"
        assert [p.name for p in tmp_path.iterdir()] == ["x.pid"]
    assert not path.exists()


def test_second_process_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pid")
    with PidFile(path), pytest.raises(AlreadyRunning) as caught:
        PidFile(path).acquire()
    assert caught.value.message == "Pidfile exists, another process running?"
    assert caught.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_running_process_without_our_lock_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "x.pid"
    path.write_text(f"{os.getppid()}\n")
    with pytest.raises(AlreadyRunning):
        PidFile(str(path)).acquire()
    assert path.read_text() == f"{os.getppid()}\n"


@pytest.mark.parametrize("content", ["", "junk\n", "dead"])
def test_stale_pidfile_is_ignored_and_said(tmp_path: Path, caplog, content: str) -> None:
    path = tmp_path / "x.pid"
    path.write_text(f"{dead_pid()}\n" if content == "dead" else content)
    with caplog.at_level("INFO"), PidFile(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"
    assert f"Ignoring stale pidfile {path}" in caplog.text


def test_release_leaves_a_file_of_another_process(tmp_path: Path) -> None:
    path = tmp_path / "x.pid"
    pidfile = PidFile(str(path))
    pidfile.acquire()
    path.unlink()
    path.write_text("1\n")
    pidfile.release()
    pidfile.release()
    assert path.read_text() == "1\n"


def test_pidfile_in_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r'cannot write pidfile ".*": No such file'):
        PidFile(str(tmp_path / "no" / "x.pid")).acquire()


def test_of_many_starters_one_wins_over_a_stale_file(tmp_path: Path) -> None:
    path = tmp_path / "x.pid"
    path.write_text(f"{dead_pid()}\n")
    code = (
        "import sys\nfrom vedur.daemon import PidFile, AlreadyRunning\n"
        "sys.stdin.readline()\n"
        "p = PidFile(sys.argv[1])\n"
        "try:\n    p.acquire(); print('won', flush=True)\n"
        "except AlreadyRunning:\n    print('lost', flush=True)\n"
        "sys.stdin.readline(); p.release()\n"
    )
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for starter in starters:
        assert starter.stdin
        starter.stdin.write("go\n")
        starter.stdin.flush()
    verdicts = [starter.stdout.readline().strip() for starter in starters if starter.stdout]
    for starter in starters:
        starter.communicate("end\n", timeout=120)
    assert sorted(verdicts) == ["lost"] * 5 + ["won"]
    assert not path.exists()


def test_signal_pidfile_verdicts(tmp_path: Path) -> None:
    path = tmp_path / "x.pid"
    assert signal_pidfile("", signal.SIGINT) is Sent.NOT_CONFIGURED
    assert signal_pidfile(str(path), signal.SIGINT) is Sent.NO_FILE
    path.write_text(f"{dead_pid()}\n")
    assert signal_pidfile(str(path), signal.SIGINT) is Sent.STALE
    path.write_text("junk")
    assert signal_pidfile(str(path), signal.SIGINT) is Sent.STALE
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    path.write_text(f"{sleeper.pid}\n")
    assert signal_pidfile(str(path), signal.SIGTERM) is Sent.OK
    assert sleeper.wait(120) == -signal.SIGTERM
    assert Sent.STALE.value == "pidfile exists, but process not running"


DETACH = """
import os, sys, time
from vedur.daemon import PidFile, Signals, detach
from vedur.log import LogOptions, setup_logging
setup_logging(LogOptions(logfile=sys.argv[2]))
half = detach()
{body}
"""


def test_detach_returns_when_ready(tmp_path: Path) -> None:
    body = (
        "pidfile = PidFile(sys.argv[1]); pidfile.acquire()\n"
        "signals = Signals(on_exit=pidfile.release); signals.install()\n"
        "print('to nowhere')\nos.write(2, b'to nowhere')\n"
        "half.ready()\n"
        "signals.stop.wait(300)\npidfile.release()\n"
    )
    path = tmp_path / "x.pid"
    done = run_python(DETACH.format(body=body), str(path), str(tmp_path / "log"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    pid = int(path.read_text())
    assert os.getsid(pid) != os.getsid(0)
    assert signal_pidfile(str(path), signal.SIGINT) is Sent.OK
    assert until(lambda: not is_running(pid))
    assert not path.exists()
    assert "Got SIGINT, shutting down" in (tmp_path / "log").read_text()


def test_detach_reports_a_failed_start(tmp_path: Path) -> None:
    body = "half.failed('cannot reach password=s3cret', 5)\n"
    done = run_python(DETACH.format(body=body), "x", str(tmp_path / "log"))
    assert (done.returncode, done.stderr) == (5, "cannot reach password=***\n")


def test_detach_reports_a_death_without_words(tmp_path: Path) -> None:
    done = run_python(DETACH.format(body="os._exit(3)"), "x", str(tmp_path / "log"))
    assert done.returncode == 1
    assert done.stderr == "the process ended while starting, see its log\n"


SIGNALS = """
import sys, time
from vedur.daemon import PidFile, Signals
from vedur.log import LogOptions, setup_logging
setup_logging(LogOptions())
pidfile = PidFile(sys.argv[1]); pidfile.acquire()
signals = Signals(on_exit=pidfile.release); signals.install()
print("up", flush=True)
end = time.monotonic() + 300
while time.monotonic() < end:
    signals.wait(300)
    if signals.take_reload():
        print("reload", flush=True)
"""


@pytest.fixture
def looping(tmp_path: Path):
    """A process that never obeys a single SIGINT."""
    process = subprocess.Popen(
        [sys.executable, "-c", SIGNALS, str(tmp_path / "x.pid")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout and process.stdout.readline() == "up\n"
    yield process
    process.kill()
    process.communicate()


def test_double_interrupt_is_a_fast_exit(looping, tmp_path: Path) -> None:
    looping.send_signal(signal.SIGINT)
    assert "Got SIGINT, shutting down" in looping.stderr.readline()
    looping.send_signal(signal.SIGINT)
    assert "WARNING Double ^C, fast exit" in looping.stderr.readline()
    assert looping.wait(120) == 1
    assert not (tmp_path / "x.pid").exists()


#: Its log is interrupted by a signal after the bytes of its first line have been written, while
#: Python still holds the buffer; a second signal comes while the first one logs.
INTERRUPTED = """
import io, logging, os, signal, sys
from vedur.daemon import PidFile, Signals
from vedur.log import LogOptions, setup_logging
wanted = [signal.Signals[name] for name in sys.argv[3:]]
class Raw(io.FileIO):
    def write(self, data):
        done = super().write(data)
        if wanted:
            os.kill(os.getpid(), wanted.pop(0))
        return done
def opened(number):
    return io.TextIOWrapper(io.BufferedWriter(Raw(number, "a")), line_buffering=True)
if sys.argv[2]:
    setup_logging(LogOptions(logfile=sys.argv[2], console=False))
    (log,) = [each for each in logging.getLogger().handlers if hasattr(each, "vedur")]
    log.setStream(opened(os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)))
else:
    sys.stderr = opened(2)
    setup_logging(LogOptions())
pidfile = PidFile(sys.argv[1]); pidfile.acquire()
signals = Signals(on_exit=pidfile.release); signals.install()
logging.getLogger("vedur").info("working")
signals.wait(0.001)
logging.getLogger("vedur").info("going on")
"""


@pytest.mark.parametrize("logfile", ["", "x.log"], ids=["console", "file"])
@pytest.mark.parametrize(
    ("numbers", "code", "told"),
    [
        (["SIGTERM"], 1, ["working", "Got SIGTERM, fast exit"]),
        (["SIGINT"], 0, ["working", "Got SIGINT, shutting down", "going on"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_signal_may_come_while_a_line_is_written(
    tmp_path: Path, logfile: str, numbers: list[str], code: int, told: list[str]
) -> None:
    log = str(tmp_path / logfile) if logfile else ""
    done = run_python(INTERRUPTED, str(tmp_path / "x.pid"), log, *numbers)
    assert done.returncode == code
    lines = ((tmp_path / logfile).read_text() if logfile else done.stderr).splitlines()
    assert [line.split(" ", 4)[-1] for line in lines] == told
    assert (tmp_path / "x.pid").exists() == (code == 0)


def test_terminate_is_a_fast_exit(looping, tmp_path: Path) -> None:
    looping.send_signal(signal.SIGTERM)
    assert looping.wait(120) == 1
    assert "Got SIGTERM, fast exit" in looping.stderr.readline()
    assert not (tmp_path / "x.pid").exists()


def test_hangup_asks_for_a_reload(looping) -> None:
    looping.send_signal(signal.SIGHUP)
    assert looping.stdout.readline() == "reload\n"
    assert looping.poll() is None


def test_wait_ends_with_the_time_or_when_woken() -> None:
    signals = Signals()
    start = SYSTEM.monotonic()
    signals.wait(0.05)
    assert SYSTEM.monotonic() - start >= 0.04
    assert not signals.take_reload()
    threading.Timer(0.05, signals.wake.set).start()
    signals.wait(100_000)  # the test would not end


def test_backoff_doubles_to_its_cap_and_resets() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.pause() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    backoff.reset()
    assert backoff.pause() == 1.0
