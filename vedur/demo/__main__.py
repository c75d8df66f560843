"""`python -m vedur.demo`: the walk-through on embedded servers, told stage by stage."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from vedur.demo.story import Story
from vedur.errors import VedurError


def main(argv: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="vedur demo",
        description="Replicate between embedded PostgreSQL servers and watch it happen.",
    )
    parser.add_argument("--fast", action="store_true", help="few users, short load: for tests")
    parser.add_argument("--keep", action="store_true", help="leave servers and daemons running")
    options = parser.parse_args(argv)
    console = Console(highlight=False)
    story = Story(console, fast=options.fast, keep=options.keep)
    try:
        return story.tell()
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    except VedurError as error:
        console.print(f"[red]demo failed:[/red] {error}")
        return error.exit_code
    finally:
        story.close()


if __name__ == "__main__":
    sys.exit(main())
