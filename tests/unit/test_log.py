"""Log lines: formats, verbosity, rotation, masking."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vedur.db.database import literal
from vedur.log import (
    TRACE,
    LogOptions,
    _JobRouter,
    direct_job,
    drop_console,
    holds_password,
    mask,
    mask_connstr,
    send_to_file,
    setup_job_logging,
    setup_logging,
    spark_log,
    trim_log,
)
from vedur.threads import Thread, working_for

log = logging.getLogger("vedur.test")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Leave no handler of ours behind."""
    level = logging.getLogger("vedur").level
    yield
    root = logging.getLogger()
    for handler in list(root.handlers):
        if getattr(handler, "vedur", False):
            root.removeHandler(handler)
            handler.close()
    logging.getLogger("vedur").setLevel(level)


SECRETS = [
    ("host=h password=s3cret dbname=d", "host=h password=*** dbname=d"),
    ("host=h password = s3cret", "host=h password = ***"),
    ("password='s3 c\\'ret' host=h", "password=*** host=h"),
    ("password=s3&c'ret)", "password=***"),
    ("sslpassword=s3cret", "sslpassword=***"),
    ("postgresql://u:s3cret@h/d", "postgresql://u:***@h/d"),
    ("postgres://u:s3@cret@h:1/d?sslmode=prefer", "postgres://u:***@h:1/d?sslmode=prefer"),
    ("postgresql://h/d?user=u&password=s3cret&x=1", "postgresql://h/d?user=u&password=***&x=1"),
    ("host=h dbname=d", "host=h dbname=d"),
    ("postgresql://u@h/d", "postgresql://u@h/d"),
]


@pytest.mark.parametrize(("text", "want"), SECRETS)
def test_mask_connstr(text: str, want: str) -> None:
    assert mask_connstr(text) == want
    assert holds_password(text) is (text != want)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("to 'host=h password=s3cret': refused", "to 'host=h password=***': refused"),
        ('got "password=s3cret".', 'got "password=***".'),
        ("alter role x password 's3cret' login", "alter role x password '***' login"),
        ("PASSWORD=s3cret", "PASSWORD=***"),
        (
            "f('host=h password=''s3 \\''cret'' port=1', 'x')",
            "f('host=h password=*** port=1', 'x')",
        ),
        ("password='' host='h'", "password=*** host='h'"),
        ("see (postgresql://u:s3cret@h/d)", "see (postgresql://u:***@h/d)"),
        ("password authentication failed", "password authentication failed"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_mask_inside_sentences(text: str, want: str) -> None:
    assert mask(text) == want


def test_londiste_line(capsys) -> None:
    setup_logging(LogOptions())
    log.info("Locking %s", "a.b")
    err = capsys.readouterr().err
    assert re.fullmatch(
        rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d{{3}} {os.getpid()} INFO Locking a\.b\n", err
    )


def test_pgqd_line(capsys) -> None:
    setup_logging(LogOptions(style="pgqd", verbosity=2))
    log.info("Starting pgqd 1")
    log.log(TRACE, "x")
    log.critical("y")
    log.warning("z")
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}} {os.getpid()} LOG Starting pgqd 1", lines[0]
    )
    assert [line.split()[3] for line in lines] == ["LOG", "NOISE", "FATAL", "WARNING"]


@pytest.mark.parametrize(
    ("verbosity", "want"),
    [
        (-1, ["WARNING"]),
        (0, ["INFO", "WARNING"]),
        (1, ["DEBUG", "INFO", "WARNING"]),
        (2, ["TRACE", "DEBUG", "INFO", "WARNING"]),
        (7, ["TRACE", "DEBUG", "INFO", "WARNING"]),
    ],
)
def test_verbosity(capsys, verbosity: int, want: list[str]) -> None:
    setup_logging(LogOptions(verbosity=verbosity))
    for level in (TRACE, logging.DEBUG, logging.INFO, logging.WARNING):
        log.log(level, "x")
    assert [line.split()[3] for line in capsys.readouterr().err.splitlines()] == want


def test_quiet_pgqd_console_is_silent_but_the_file_is_not(capsys, tmp_path: Path) -> None:
    setup_logging(LogOptions(style="pgqd", verbosity=-1, logfile=str(tmp_path / "l")))
    log.warning("x")
    assert capsys.readouterr().err == ""
    assert "WARNING x" in (tmp_path / "l").read_text()


def _fail() -> None:
    raise RuntimeError("no route with password=s3cret")


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("verbosity", [0, 1])
def test_traceback_only_when_verbose_and_always_masked(
    capsys, log_format: str, verbosity: int
) -> None:
    setup_logging(LogOptions(verbosity=verbosity, log_format=log_format))
    try:
        _fail()
    except RuntimeError:
        log.exception("job got error: %s", "password=s3cret")
    err = capsys.readouterr().err
    assert ("Traceback" in err) is (verbosity > 0)
    assert "s3cret" not in err
    assert "job got error: password=***" in err


def test_json_lines_carry_fields(capsys) -> None:
    setup_logging(LogOptions(log_format="json"))
    log.info("tick on %s", "q", extra={"action": "tick", "dsn": "password=s3cret", "count": 3})
    line = json.loads(capsys.readouterr().err)
    assert line["message"] == "tick on q"
    assert (line["level"], line["pid"], line["logger"]) == ("INFO", os.getpid(), "vedur.test")
    assert (line["action"], line["dsn"], line["count"]) == ("tick", "password=***", 3)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"])


def test_rotation(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    setup_logging(LogOptions(logfile=str(path), log_size=300, log_count=2, console=False))
    for number in range(40):
        log.info("line %s", number)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["job.log", "job.log.1", "job.log.2"]
    assert "line 39" in path.read_text()


def test_setup_twice_does_not_write_twice(capsys) -> None:
    setup_logging(LogOptions())
    setup_logging(LogOptions())
    log.info("once")
    assert capsys.readouterr().err.count("once") == 1


def test_a_log_file_that_cannot_be_opened_leaves_logging_alone(capsys, tmp_path: Path) -> None:
    setup_logging(LogOptions())
    with pytest.raises(OSError):
        setup_logging(LogOptions(logfile=str(tmp_path / "no" / "l")))
    log.info("still here")
    assert "still here" in capsys.readouterr().err


def test_drop_console(capsys, tmp_path: Path) -> None:
    setup_logging(LogOptions(logfile=str(tmp_path / "l")))
    drop_console()
    log.info("x")
    assert capsys.readouterr().err == ""
    assert "INFO x" in (tmp_path / "l").read_text()


def test_syslog_gets_masked_lines(tmp_path: Path, monkeypatch, capsys) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "log"))
        server.settimeout(60)
        monkeypatch.setattr("vedur.log._SYSLOG_SOCKET", str(tmp_path / "log"))
        setup_logging(LogOptions(style="pgqd", console=False, syslog_ident="pgqd"))
        log.info("to %s", "password=s3cret")
        got = server.recv(1000).rstrip(b"\0").decode()
    assert got == f"<30>pgqd[{os.getpid()}]: LOG to password=***"
    log.info("nobody listens any more")
    assert capsys.readouterr().err == ""


def test_a_machine_without_syslog(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("vedur.log._SYSLOG_SOCKET", str(tmp_path / "none"))
    setup_logging(LogOptions(style="pgqd", console=False, syslog_ident="pgqd"))
    log.info("x")
    assert capsys.readouterr().err == ""


def test_skylog_file_is_used_and_masked(tmp_path: Path) -> None:
    target = tmp_path / "central.log"
    (tmp_path / "skylog.ini").write_text(
        "[loggers]\nkeys=root\n[handlers]\nkeys=f\n[formatters]\nkeys=s\n"
        "[logger_root]\nhandlers=f\nlevel=INFO\n"
        f"[handler_f]\nclass=FileHandler\nargs=('{target}',)\nformatter=s\n"
        "[formatter_s]\nformat=central %(message)s\n"
    )
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        setup_logging(
            LogOptions(use_skylog=2, skylog_locations=("/none", str(tmp_path / "skylog.ini")))
        )
        log.info("to %s", "password=s3cret")
        assert target.read_text() == "central to password=***\n"
    finally:
        root.setLevel(level)
        for handler in before:
            if handler not in root.handlers:
                root.addHandler(handler)


def test_arguments_of_functions_are_shown_without_passwords() -> None:
    shown = literal("host=h password='s3 \\'cret' user=u")
    assert shown == "'host=h password=*** user=u'"
    assert literal("it's") == "'it''s'"


def test_the_log_of_another_process_is_kept_small(tmp_path: Path) -> None:
    path = tmp_path / "w.log.spark"
    assert spark_log(str(tmp_path / "w.log")) == str(path)
    assert spark_log("") == ""
    with path.open("ab", buffering=0) as java:  # held open and appended to
        for text in (b"one" * 5, b"two" * 5, b"six" * 5):
            java.write(text)
            trim_log(str(path), 10, 2)
        java.write(b"ten")
    trim_log(str(path), 10, 2)
    assert path.read_bytes() == b"ten"
    assert [p.name for p in sorted(tmp_path.iterdir())] == [
        path.name,
        f"{path.name}.1",
        f"{path.name}.2",
    ]
    assert (tmp_path / f"{path.name}.1").read_bytes() == b"six" * 5
    trim_log(str(tmp_path / "none"), 10, 2)
    trim_log("", 10, 2)


def test_other_peoples_loggers_have_a_file_of_their_own(tmp_path: Path, capsys) -> None:
    setup_logging(LogOptions(logfile=str(tmp_path / "w.log")))
    place = tmp_path / "w.log.spark"
    for _ in range(2):
        send_to_file(("some.library",), str(place))
    logging.getLogger("some.library.part").warning("Java says password=secret")
    logging.getLogger("vedur").warning("ours")
    assert place.read_text().count("Java says password=***") == 1
    assert "Java says" not in (tmp_path / "w.log").read_text() + capsys.readouterr().err
    send_to_file(("some.library",), "")


class _Blocked(io.StringIO):
    """A terminal that takes nothing more; a signal comes while a line is being written to it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def fileno(self) -> int:
        return self.number

    def write(self, text: str) -> int:
        if "first" in text:
            log.info("what the function of the signal says")
        return super().write(text)


def test_a_line_of_a_signal_waits_for_nobody(monkeypatch) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 1024)
    os.set_blocking(writer, True)
    monkeypatch.setattr(sys, "stderr", _Blocked(writer))
    setup_logging(LogOptions())
    log.info("first")
    log.info("second")
    lines = sys.stderr.getvalue().splitlines()
    assert [line.partition("INFO ")[2] for line in lines] == ["first", "second"]
    os.close(reader)
    os.close(writer)


# -- several jobs -------------------------------------------------------------------------------


def test_each_job_has_its_own_log(tmp_path, capfd) -> None:
    setup_job_logging(0, console=True)
    for job, form in (("a", "text"), ("b", "json")):
        direct_job(job, LogOptions(logfile=str(tmp_path / job), log_format=form, console=False))
    with working_for("a"):
        log.info("of a, password=%s", "secret")
        thread = Thread(target=log.info, args=("of a thread of a",))
        thread.start()
        thread.join()  # it writes its file first, then the console
    with working_for("b"):
        log.info("of b")
    log.info("of nobody")
    direct_job("a", None)
    with working_for("b"):
        log.info("alone")
    first = [line.partition("INFO ")[2] for line in (tmp_path / "a").read_text().splitlines()]
    assert first == ["of a, password=***", "of a thread of a", "of nobody"]
    lines = [json.loads(line) for line in (tmp_path / "b").read_text().splitlines()]
    assert [line["message"] for line in lines] == ["of b", "of nobody", "alone"]
    assert [line.get("job") for line in lines] == ["b", None, "b"]
    shown = [line.partition("INFO ")[2] for line in capfd.readouterr().err.splitlines()]
    assert shown == [
        "[a] of a, password=***", "[a] of a thread of a", "[b] of b", "of nobody", "[b] alone"
    ]  # fmt: skip
    setup_logging(LogOptions())


def test_a_job_is_sent_elsewhere(tmp_path) -> None:
    setup_job_logging(0, console=False)
    for path in ("old", "new"):
        direct_job("a", LogOptions(logfile=str(tmp_path / path), console=False))
        with working_for("a"):
            log.info("to %s", path)
    with pytest.raises(OSError):
        direct_job("a", LogOptions(logfile=str(tmp_path / "no" / "x"), console=False))
    with working_for("a"):
        log.info("still there")
    assert "to old" in (tmp_path / "old").read_text()
    assert "still there" in (tmp_path / "new").read_text()
    setup_logging(LogOptions())


def test_a_log_file_that_blocks_holds_nobody_else(tmp_path) -> None:
    """As a file on a server that does not answer, or a pipe that nobody reads: lines of other jobs
    are written meanwhile, and their logs can be sent elsewhere."""
    setup_job_logging(0, console=False)
    for job in ("a", "b"):
        direct_job(job, LogOptions(logfile=str(tmp_path / job), console=False))
    router = next(h for h in logging.getLogger().handlers if isinstance(h, _JobRouter))
    blocked = router._jobs["a"][0]
    assert blocked.lock is not None
    blocked.lock.acquire()

    def write() -> None:
        with working_for("b"):
            log.info("of b")
        direct_job("b", LogOptions(logfile=str(tmp_path / "new"), console=False))
        with working_for("b"):
            log.info("of b again")

    try:
        with working_for("a"):
            held = [Thread(target=log.info, args=("of a",), daemon=True)]
        held.append(Thread(target=direct_job, args=("a", None), daemon=True))
        held[0].start()
        held[0].join(0.3)  # it waits for its own file by then, or does so later
        held[1].start()
        held[1].join(0.3)
        other = Thread(target=write, daemon=True)
        other.start()
        other.join(60)
        ended = not other.is_alive()
    finally:
        blocked.lock.release()
    for thread in (*held, other):
        thread.join(60)
    blocked.close()  # the line of a may have opened it again
    assert ended
    assert "of b" in (tmp_path / "b").read_text()
    assert "of b again" in (tmp_path / "new").read_text()
    setup_logging(LogOptions())
