"""A wall clock that can jump: a preloaded library adds seconds found in a file.

Only real-time clocks jump; monotonic ones do not, as on a machine whose time is set. Needs a C
compiler; without one the fault is left out and the record says so.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

VARIABLE = "TORTURE_CLOCK"
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long zero = 0, *offset = &zero;
static int (*real_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TORTURE_CLOCK");
    int fd = path ? open(path, O_RDONLY) : -1;
    real_clock = dlsym(RTLD_NEXT, "clock_gettime");
    if (fd >= 0) {
        void *at = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED) offset = at;
        close(fd);
    }
}
int clock_gettime(clockid_t id, struct timespec *ts) {
    if (!real_clock) real_clock = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real_clock(id, ts);
    if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) ts->tv_sec += *offset;
    return rc;
}
int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
    struct timespec ts;
    (void) tz;
    int rc = clock_gettime(CLOCK_REALTIME, &ts);
    if (tv) { tv->tv_sec = ts.tv_sec; tv->tv_usec = ts.tv_nsec / 1000; }
    return rc;
}
time_t time(time_t *at) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (at) *at = ts.tv_sec;
    return ts.tv_sec;
}
"""


class Clock:
    """The offset of one group of processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(struct.pack("l", 0))
        path.chmod(0o644)

    def set(self, seconds: int) -> None:
        """Jump."""
        with self.path.open("r+b") as stream:
            stream.write(struct.pack("l", seconds))


def build(base: Path) -> Path | None:
    """Compile the library; None where that cannot be done."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, library = base / "clock.c", base / "clock.so"
    source.write_text(_SOURCE)
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        return None
    library.chmod(0o755)
    return library
