"""What must hold after every fault: equal contents, and nothing left over.

Contents are compared with statements of this module only, not by the product's own compare.
Things that may need a moment (a backend that notices a dead client) are asked for until they hold.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.torture.ground import Ground
from tests.torture.processes import DAEMON, children, cmdline, working_in
from tests.torture.rig import LEAF, MID, ROOT, Rig
from tests.torture.schema import NAMES, OWNER, PART_HERE, SEQUENCES
from vedur.demo.lab import QUEUE
from vedur.tables.stages import stage_prefix

#: Seconds within which leftovers must have gone.
SETTLE = 120.0
#: Connections of a worker and its tasks at rest; a leak of one a cycle is seen at once.
MOST_CONNECTIONS = {ROOT: 15, MID: 28, LEAF: 13}
#: Task processes without a daemon, at most the number of Spark's slots.
MOST_ORPHANS = 3
#: What living processes keep in TMPDIR: the directory of each worker's Spark.
MOST_FILES = 1

#: One row for each table: rows, their md5, columns, indexes, foreign keys.
_TABLE = """
select '{table}', r.n, r.sum, c.columns, i.indexes, f.fkeys
from (select count(*) as n, md5(coalesce(string_agg(r, e'\\n' order by r), '')) as sum
      from (select t::text collate "C" as r from only {table} t where {condition}) x) r,
     (select string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' order by attname)
             as columns
      from pg_attribute
      where attrelid = '{table}'::regclass and attnum > 0 and not attisdropped) c,
     (select string_agg(d, '; ' order by d) as indexes
      from pg_index, regexp_replace(pg_get_indexdef(indexrelid), 'part_here', 'part', 'g') as d
      where indrelid = '{table}'::regclass) i,
     (select string_agg(pg_get_constraintdef(oid) || convalidated, '; ' order by conname) as fkeys
      from pg_constraint where conrelid = '{table}'::regclass and contype = 'f') f
"""
SESSIONS = """
with ours as (
    select * from pg_stat_activity
    where backend_type = 'client backend' and application_name not in ('torture', 'psql'))
select 'connections', string_agg(application_name || ' ' || coalesce(state, ''), ', ')
from ours having count(*) > %(most)s
union all
select 'transaction', concat_ws(' ', application_name, state, backend_xmin, left(query, 80))
from ours where xact_start < clock_timestamp() - interval '3 seconds'
union all
select 'prepared', gid from pg_prepared_xacts
union all
select 'slot', slot_name from pg_replication_slots
union all
select 'advisory lock', concat_ws(' ', application_name, l.classid, l.objid)
from pg_locks l join ours o using (pid)
where l.locktype = 'advisory' and o.state = 'idle'
    and o.state_change < clock_timestamp() - interval '1 second'
    and application_name not like 'vedur resident %%'
union all
select 'more than one', application_name from ours
where application_name like 'vedur resident %%'
group by application_name, datname having count(*) > 1
"""
COPY_ROWS = """
select 'slice', table_name from vedur.copy_slice
union all
select 'progress: ' || coalesce(error, step_name), table_name from vedur.copy_progress
where finished_at is null or error is not null
union all
select 'hold', tick_id::text from vedur.hold where until > clock_timestamp()
"""


class Failed(Exception):
    """A check that does not hold; the campaign stops here."""


def pairs(rig: Rig, node: str = LEAF) -> list[tuple[str, str, str]]:
    """Table on the root, on another node, condition."""
    names = (*NAMES, "part") if node == MID else NAMES
    same = [(f"{OWNER}.{n}", f"{OWNER}.{n}", "true") for n in names]
    if node == MID:
        return same
    return [*same, (f"{OWNER}.part", f"{OWNER}.{PART_HERE}", rig.part_condition())]


def contents(rig: Rig) -> int:
    """All tables are equal in rows, columns, indexes and foreign keys; the number of rows."""
    return sum(_same(rig, node) for node in rig.followers)


def _same(rig: Rig, node: str) -> int:
    wanted = pairs(rig, node)
    # keyed by name: a union has no order
    there = {row[0]: row for row in rig.query(ROOT, _all((s, c) for s, _, c in wanted))}
    here = {row[0]: row for row in rig.query(node, _all((d, "true") for _, d, _ in wanted))}
    for source, dest, _ in wanted:
        want, have = there[source], here[dest]
        if want[1:3] != have[1:3]:
            found = _difference(rig, node, source, dest)
            raise Failed(f"{node}: {dest}: {have[1:3]}, root has {want[1:3]}\n{found}")
        if want[3:] != have[3:]:
            raise Failed(f"{node}: {dest}: structure {have[3:]}, root has {want[3:]}")
    return sum(want[1] for want in there.values())


def _all(tables: Iterable[tuple[str, str]]) -> str:
    parts = [_TABLE.format(table=table, condition=condition) for table, condition in tables]
    return " union all ".join(parts)


def _difference(rig: Rig, node: str, source: str, dest: str) -> str:
    text = 'select t::text collate "C" from only {} t order by 1'
    want = {r[0] for r in rig.query(ROOT, text.format(source))}
    have = {r[0] for r in rig.query(node, text.format(dest))}
    lines = [f"  missing {r[:200]}" for r in sorted(want - have)[:10]]
    lines += [f"  extra   {r[:200]}" for r in sorted(have - want)[:10]]
    return "\n".join(lines)


def until(found: Callable[[], Any], what: str, limit: float = SETTLE) -> None:
    """Wait until `found()`, which lists what should not be there, is empty."""
    deadline = time.monotonic() + limit
    while left := found():
        if time.monotonic() > deadline:
            raise Failed(f"{what}: {left}")
        time.sleep(0.1)


class Baseline:
    """What the laboratory looks like at rest, taken before the first fault."""

    def __init__(self, rig: Rig) -> None:
        until(lambda: copy_rows(rig), "first copies")
        until(lambda: [c for c in self._consumers(rig) if ".copy." in c[1]], "first copies")
        self.consumers = self._consumers(rig)

    @staticmethod
    def _consumers(rig: Rig) -> list[tuple[Any, ...]]:
        there = "select %s, consumer_name from pgq.get_consumer_info() order by 2"
        here = "select %s, consumer_name from pgq_node.local_state order by 2"
        above = [row for node in rig.nodes[:-1] for row in rig.query(node, there, [node])]
        return above + [row for node in rig.followers for row in rig.query(node, here, [node])]

    def leftovers(self, rig: Rig) -> None:
        """Nothing of a fault or of a copy is left."""
        until(lambda: staging(rig), "staging tables left")
        until(lambda: copy_rows(rig), "rows of copies left")
        until(lambda: set(self._consumers(rig)) ^ set(self.consumers), "consumers differ")
        until(lambda: sessions(rig), "sessions left")
        until(lambda: processes(rig), "processes left")
        until(lambda: files(rig), "files left")


def staging(rig: Rig) -> list[str]:
    """Tables in vedur_work that are not the worker's two slots of existing tables."""
    text = (
        "select s.relname from pg_class s where s.relnamespace = 'vedur_work'::regnamespace"
        " and s.relkind in ('r', 'S', 'v', 'm') and not exists (select from pg_class t"
        " where t.relkind = 'r' and s.relname like %(prefix)s || t.oid || '\\_%%')"
        " and s.relname not like %(prefix)s || 'log\\_%%'"
    )
    prefix = stage_prefix(QUEUE).replace("_", "\\_")
    found = []
    for node in rig.followers:
        names = [row[0] for row in rig.query(node, text, {"prefix": prefix})]
        # a branch keeps two slots of raw events, too
        slots = {"raw_1_0", "raw_1_1"} if node == MID else set()
        # that of the resident task, while it is there
        orders = [name for name in names if re.search(r"_orders_[0-9a-f]{16}$", name)]
        slots |= set(orders) if len(orders) == 1 else set()
        found += [name for name in names if name not in slots]
    return found


def copy_rows(rig: Rig) -> list[tuple[Any, ...]]:
    """Slices, unfinished progress, holds that still count."""
    return [row for node in rig.followers for row in rig.query(node, COPY_ROWS)]


def sessions(rig: Rig) -> list[tuple[Any, ...]]:
    """Too many connections, old transactions, prepared ones, locks that outlive their work."""
    return [
        (name, *row)
        for name in rig.nodes
        for row in rig.query(name, SESSIONS, {"most": MOST_CONNECTIONS[name]})
    ]


def processes(rig: Ground) -> list[tuple[int, str]]:
    """Processes of ours that do not belong to a daemon that is meant to run."""
    tops = [p.pid for p in rig.processes.values()] + [rig.commands.process.pid]
    wanted = set(tops) | set(children(*tops))
    found = [(pid, cmdline(pid)[:100]) for pid in working_in(rig.base) - wanted if cmdline(pid)]
    # Java goes on using task processes whose daemon was killed; it can have no more than slots
    orphans = [(pid, text) for pid, text in found if DAEMON in text]
    return [x for x in found if x not in orphans or len(orphans) > MOST_ORPHANS]


def files(rig: Rig) -> list[str]:
    """More in TMPDIR than one Spark needs."""
    found = [p.name for p in rig.tmp.iterdir() if not p.name.startswith("hsperfdata")]
    return found if len(found) > MOST_FILES * len(rig.followers) else []


def sequences(rig: Rig) -> None:
    """A node's sequences are never behind those of the root."""

    def behind() -> list[str]:
        return [
            f"{node}: {name}: {here} after {there}"
            for node in rig.followers
            for name in SEQUENCES
            for text in [f"select last_value from {name}"]
            for there, here in [(rig.value(ROOT, text), rig.value(node, text))]
            if here < there
        ]

    until(behind, "sequences behind")


def positions(rig: Rig) -> None:
    """Each provider knows what the node below it has: the batch is finished, none is open."""
    text = (
        "select s.sub_last_tick from pgq.subscription s"
        " join pgq.consumer c on c.co_id = s.sub_consumer"
        " where c.co_name = %s and (s.sub_batch is null or s.sub_last_tick = %s)"
    )

    def apart() -> str:
        for node in rig.followers:
            here = rig.position(node)
            there = rig.value(rig.provider_of(node), text, [node, here])
            if there is None or not there <= here <= there + 2:
                return f"{there}, {node} {here}"
        return ""

    until(apart, "positions differ")


def status(rig: Rig, tick: int) -> None:
    """`status` says that all is well; the nodes are asked in turns."""
    types = {ROOT: "root", **dict.fromkeys(rig.nodes[1:-1], "branch"), LEAF: "leaf"}

    def wrong() -> str:
        ini = rig.nodes[tick % len(rig.nodes)]
        done = rig.command(ini, "status", "--json")
        if done.code != 0:
            return f"exit {done.code}: {done.err}"
        nodes = {n["name"]: n for n in json.loads(done.out)["nodes"]}
        if {name: nodes[name]["type"] for name in nodes} != types:
            return f"{ini} sees {[(n['name'], n['type']) for n in nodes.values()]}"
        for name in rig.followers:
            node = nodes[name]
            counts = (node["tables_ok"], node["tables_half"], node["tables_ignored"])
            if counts != (len(pairs(rig, name)), 0, 0) or node["errors"] or node["tick"] < tick:
                return f"{ini}: {name}: {counts}, {node['errors']}, tick {node['tick']} of {tick}"
            if node["provider"] != rig.provider_of(name):
                return f"{ini} sees {name} below {node['provider']}"
        return ""

    until(wrong, "status")


#: Errors that no fault from outside explains; one that a failpoint has raised is the campaign's.
_OWN = re.compile(
    r"BUG(?!: (unexpected error: )?Fired\b)"
    r"|(crashed|failed): .*(\w+ object|invalid literal|unexpected keyword|not subscriptable)"
)


def log_bugs(rig: Ground, since: dict[str, int]) -> list[str]:
    """Lines since the offsets that tell of an error of our own; moves the offsets on.

    Java and dying task processes write to the same files: a traceback alone says nothing.
    """
    found = []
    for path in sorted(Path(rig.base, "log").glob("*.log")):
        data = path.read_bytes()[since.get(path.name, 0) :]
        since[path.name] = since.get(path.name, 0) + len(data)
        found += [x for x in data.decode(errors="replace").splitlines() if _OWN.search(x)]
    return found
