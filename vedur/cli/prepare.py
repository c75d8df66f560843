"""`vedur prepare`: make the archive from which Java starts in half the time."""

from __future__ import annotations

import argparse
import sys


def main(argv: list[str]) -> int:
    """Write the archive unless it exists; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="vedur prepare",
        description="Write the classes that Spark loads at its start into an archive in "
        "~/.cache/vedur (about 150 MB; XDG_CACHE_HOME is honoured). Workers, compare and repair "
        "of this user then start in half the time. Run it again after an update of Java or Spark.",
    )
    parser.add_argument("--again", action="store_true", help="also if there is one already")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but errors")
    options = parser.parse_args(argv)
    from vedur.pipeline.spark.java_start import archive, make_archive, usable

    path = archive()
    if path is not None and usable(path) and not options.again:
        if not options.quiet:
            print(f"{path} is there already")
        return 0
    try:
        made = make_archive()
    except OSError as error:
        print(f'cannot write "{error.filename}": {error.strerror}', file=sys.stderr)
        return 1
    if made is None:
        print(
            "no Java was found, or it writes no archives of classes: Spark starts without one",
            file=sys.stderr,
        )
        return 1
    if not options.quiet:
        print(f"written: {made}")
    return 0
