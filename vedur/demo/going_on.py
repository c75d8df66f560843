"""What to do after the demo: commands to try where it was kept, logs to read where it failed."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.markup import escape

from vedur.demo.story import LEAF, OWNER, PART, ROOT, Story
from vedur.errors import VedurError
from vedur.log import mask

#: Lines of the logs that are quoted after a failure.
_QUOTED = 5
_LEVELS = (" ERROR ", " CRITICAL ", " FATAL ", "FATAL:", "ERROR:")


def how_to_go_on(story: Story) -> str:
    """Return commands to try, in rich's markup; also writes them to a file beside the ini files."""
    lab = story.lab
    root, leaf = lab.servers["root"], lab.servers["leaf"]
    psql = root.binaries.path("psql")
    script = lab.base / "ini" / "add_column2.sql"
    script.write_text("alter table digoal_01.user_info add column c2 text;\n")
    lines = [
        f"Left running. Status page: {story.page}",
        "",
        f"  cd {lab.base}/ini          # ini files; logs are in ../log",
        f"  export PATH={Path(sys.executable).parent}:$PATH",
        f"  londiste3 {ROOT}.ini status",
        f"  londiste3 {LEAF}.ini tables",
        f"  londiste3 {LEAF}.ini compare",
        f"  londiste3 {PART}.ini doctor",
        f"  {psql} -h 127.0.0.1 -p {root.port} -U {OWNER} digoal_01 "
        "-c \"update user_info set email = 'new' where userid = 7\"",
        f"  {psql} -h 127.0.0.1 -p {leaf.port} -U {OWNER} digoal_01 "
        '-c "select userid, email from user_info where userid = 7"',
        f"  londiste3 {LEAF}.ini pause      # watch the lag on the status page, then: resume",
        f"  londiste3 {ROOT}.ini execute {script.name}",
        f"  londiste3 {LEAF}.ini --help",
        "",
        f"Stop all of it and remove the files:  {_program()} demo --stop {lab.base}",
    ]
    text = "\n".join(lines)
    (lab.base / "TRY.txt").write_text(text + "\n")
    return "\n" + escape(text)


def what_went_wrong(story: Story, error: VedurError) -> str:
    """Read the last errors of the logs; returns the failure, these and where the logs are, in
    rich's markup."""
    base = story.lab.base
    logs = sorted([*(base / "log").glob("*.log"), *base.glob("*/postgres.log")])
    lines = [f"\n[red]demo failed in {story.where}:[/red] {escape(mask(error.message))}"]
    for path in logs:
        text = path.read_text(errors="replace").splitlines()
        found = [line for line in text if any(level in line for level in _LEVELS)][-_QUOTED:]
        lines += [f"  [dim]{path.name}:[/dim] {escape(mask(line))}" for line in found]
    lines += [
        f"Everything is stopped. Logs: {base}/log, {base}/root/postgres.log, "
        f"{base}/leaf/postgres.log",
        f"Remove them:  {_program()} demo --stop {base}",
    ]
    return "\n".join(lines)


def _program() -> Path:
    return Path(sys.executable).with_name("vedur")
