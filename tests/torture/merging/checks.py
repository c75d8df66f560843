"""What must hold after every fault: the merged tables are the union of the parts, exactly.

Rows are read by statements of this module only. A row tells which part it is of, and keys of parts
never meet, so a row that was lost, doubled, or left behind by a part that has removed it is seen.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

from tests.torture import checks
from tests.torture.checks import SETTLE, Failed, until
from tests.torture.merging.rig import (
    COMPANY,
    FULL,
    HALL,
    MEMBERS,
    PLACES,
    PROCESSES,
    STAND,
    MergeRig,
)
from tests.torture.merging.schema import COMBINED, KEYED, PARTS, TOLD, WHOLE
from vedur.tables.stages import stage_prefix

#: Places that merge: the tables they have, and the parts that bring them.
MERGED = {
    FULL: ((*WHOLE, *TOLD), PARTS),
    HALL: (COMBINED, MEMBERS),
    STAND: (COMBINED, MEMBERS),
}
#: How many connections more than at rest a server may have.
MORE_CONNECTIONS = 8
#: A queue must have let go of what was written so many cycles ago.
KEPT_CYCLES = 3

_ROWS = 'select t::text collate "C" from only {table} t'
_STRUCTURE = """
select (select string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' order by attnum)
        from pg_attribute
        where attrelid = '{table}'::regclass and attnum > 0 and not attisdropped),
    (select string_agg(d, '; ' order by d) from pg_index, pg_get_indexdef(indexrelid) as d
     where indrelid = '{table}'::regclass),
    (select string_agg(pg_get_constraintdef(oid) || convalidated, '; ' order by conname)
     from pg_constraint where conrelid = '{table}'::regclass and contype = 'f')
"""
_CONNECTED = """
select count(*) from pg_stat_activity
where backend_type = 'client backend' and application_name not in ('torture', 'psql')
"""


def contents(rig: MergeRig) -> int:
    """Every merged table is the union of its parts, row by row; the number of rows in all."""
    found = 0
    parts = {
        (part, table): [row[0] for row in rig.query(part, _ROWS.format(table=table))]
        for part in PARTS
        for table in (*WHOLE, *TOLD)
    }
    for place, (tables, members) in MERGED.items():
        for table in tables:
            have = Counter(row[0] for row in rig.query(place, _ROWS.format(table=table)))
            want = Counter(row for part in members for row in parts[part, table])
            require_same(f"{place}: {table}", have, want)
            structure = _STRUCTURE.format(table=table)
            here, there = rig.query(place, structure), rig.query(PARTS[0], structure)
            if here != there:
                raise Failed(f"{place}: {table}: structure {here}, {PARTS[0]} has {there}")
            found += have.total()
    return found + sum(keyed(rig, table) for table in KEYED)


def keyed(rig: MergeRig, table: str) -> int:
    """A table whose parts a column tells is their union, each row with the name of its queue."""
    text = "select (%s, id, name, v)::text from only {table} t"
    have = Counter(row[0] for row in rig.query(FULL, text.format(table=table) % "shard"))
    want: Counter[str] = Counter()
    for part in PARTS:
        rows = rig.query(part, text.format(table=table) % f"'{part}'::text")
        want.update(row[0] for row in rows)
    require_same(f"{FULL}: {table}", have, want)
    indexes = rig.query(FULL, "select count(*) from pg_indexes where tablename = 'clients'")
    if indexes != [(2,)]:
        raise Failed(f"{FULL}: {table} has {indexes} indexes")
    return have.total()


def require_same(what: str, have: Counter[Any], want: Counter[Any]) -> None:
    """Raise where something is missing, or there more often than on the roots. Pure."""
    if have == want:
        return
    missing, extra = want - have, have - want
    lines = [
        f"{what}: {have.total()}, the root has {want.total()}: {missing.total()} missing, "
        f"{extra.total()} too many"
    ]
    lines += [f"  missing {text[:200]}" for text in sorted(map(str, missing))[:10]]
    lines += [f"  extra   {text[:200]}" for text in sorted(map(str, extra))[:10]]
    raise Failed("\n".join(lines))


def readers() -> list[tuple[str, str, str]]:
    """Who reads which queue from whom: place, queue, provider."""
    found = [(FULL, part, part) for part in PARTS]
    found += [(place, part, part) for place in (HALL, STAND) for part in MEMBERS]
    return [*found, (STAND, COMPANY, HALL)]


def positions(rig: MergeRig) -> None:
    """Each position is a tick of its queue, and the provider's consumer stands there."""
    tick = (
        "select 1 from pgq.tick join pgq.queue on queue_id = tick_queue"
        " where queue_name = %s and tick_id = %s"
    )
    stands = (
        "select s.sub_last_tick from pgq.subscription s"
        " join pgq.consumer c on c.co_id = s.sub_consumer"
        " join pgq.queue q on q.queue_id = s.sub_queue"
        " where q.queue_name = %s and c.co_name = %s"
    )

    def apart() -> str:
        for place, queue, provider in readers():
            here = rig.position(place, queue)
            if not rig.value(provider, tick, [queue, here]):
                return f"{place} is at {here}, which is no tick of {queue}"
            there = rig.value(provider, stands, [queue, rig.ini(place, queue)])
            if there is None or not there <= here <= there + 2:
                return f"{place} is at {here} of {queue}, its consumer at {there}"
        return ""

    until(apart, "positions differ")


def scripts(rig: MergeRig) -> None:
    """A script that all parts have sent was run once where they meet, or once for each part."""
    text = "select script, count(*) from t.ran group by 1"
    for place, (_, members) in MERGED.items():
        times = dict(rig.query(place, text))
        want = {name: len(members) if each else 1 for name, each in rig.scripts.items()}
        if times != want:
            wrong = {n: (times.get(n), want.get(n)) for n in times.keys() | want.keys()}
            raise Failed(f"{place}: scripts were run, and the root has: {wrong}")


class CombinedEvents:
    """What the parts of the combined queue have written, read beside the combined queue: every
    change of a row must be there once."""

    CONSUMER = "campaign"
    _SETUP = """
create schema torture;
create function torture.read_on(queue text, consumer text, upto bigint)
returns table (tick bigint, at timestamptz, kind text, data text, tab text) language plpgsql as $$
declare
    b record;
begin
    loop
        select * into b from pgq.next_batch_info(queue, consumer);
        exit when b.batch_id is null or b.cur_tick_id > upto;
        return query
            select b.cur_tick_id::bigint, ev_time, ev_type, ev_data, ev_extra1
            from pgq.get_batch_events(b.batch_id) where ev_type !~ '^(pgq\\.|londiste\\.|EXECUTE)';
        perform pgq.finish_batch(b.batch_id);
    end loop;
end $$;
"""
    _REGISTER = "select pgq.register_consumer_at(%s, %s, %s)"
    _STANDS = "select last_tick from pgq.get_consumer_info(%s, %s)"
    _READ = "select at, kind, data, tab from torture.read_on(%s, %s, %s)"

    def __init__(self, rig: MergeRig) -> None:
        """At rest: the combined queue has what the parts have."""
        self.rig = rig
        self.queues = [(part, part) for part in MEMBERS] + [(HALL, COMPANY)]
        self._read: dict[str, int] = {}
        for place, queue in self.queues:
            rig.query(place, self._SETUP)
            self._read[queue] = rig.last_tick(place, queue)
            rig.query(place, self._REGISTER, [queue, self.CONSUMER, self._read[queue]])

    def compare(self, ticks: dict[str, int]) -> int:
        """From where the last cycle has stopped, up to the ticks; how many changes."""
        found = {q: self._events(place, q, ticks[q]) for place, q in self.queues}
        want = sum((found[part] for part in MEMBERS), Counter())
        have = found[COMPANY]
        self._read |= {queue: ticks[queue] for _, queue in self.queues}
        require_same("changes in the combined queue", have, want)
        return have.total()

    def _events(self, place: str, queue: str, upto: int) -> Counter[tuple[Any, ...]]:
        # a server that crashed may have forgotten that ticks were read: they were compared
        if self.rig.value(place, self._STANDS, [queue, self.CONSUMER]) < self._read[queue]:
            self.rig.query(place, self._REGISTER, [queue, self.CONSUMER, self._read[queue]])
        return Counter(self.rig.query(place, self._READ, [queue, self.CONSUMER, upto]))


class Rotation:
    """Queues do not keep what everybody has read."""

    def __init__(self) -> None:
        self._goals: list[dict[str, int]] = []

    def check(self, rig: MergeRig, ticks: dict[str, int]) -> None:
        """Ticks of some cycles ago are gone."""
        self._goals.append(ticks)
        if len(self._goals) <= KEPT_CYCLES:
            return
        limits, deadline = self._goals.pop(0), time.monotonic() + SETTLE
        text = (
            "select min(tick_id) from pgq.tick join pgq.queue on queue_id = tick_queue"
            " where queue_name = %s"
        )
        places = [*((part, part) for part in PARTS), (HALL, COMPANY), (STAND, COMPANY)]
        for place, queue in places:
            while (first := rig.value(place, text, [queue])) <= limits[queue]:
                if time.monotonic() > deadline:
                    raise Failed(f"{queue} is not rotated on {place}: tick {first} is still there")
                time.sleep(0.1)


class Baseline:
    """What the laboratory looks like at rest, taken before the first fault."""

    def __init__(self, rig: MergeRig) -> None:
        until(lambda: copy_rows(rig), "first copies")
        until(lambda: [c for c in consumers(rig) if ".copy." in c[2]], "first copies")
        self.consumers = set(consumers(rig))
        self.connections = {server: self._connected(rig, server) for server in rig.servers}

    @staticmethod
    def _connected(rig: MergeRig, server: str) -> int:
        place = next(name for name, at in PLACES.items() if at == server)
        return int(rig.value(place, _CONNECTED))

    def leftovers(self, rig: MergeRig) -> None:
        """Nothing of a fault or of a copy is left."""
        until(lambda: staging(rig), "staging tables left")
        until(lambda: copy_rows(rig), "rows of copies left")
        until(lambda: set(consumers(rig)) ^ self.consumers, "consumers differ")
        until(lambda: self._sessions(rig), "sessions left")
        until(lambda: checks.processes(rig), "processes left")
        until(lambda: files(rig), "files left")

    def _sessions(self, rig: MergeRig) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for server, most in self.connections.items():
            place = next(name for name, at in PLACES.items() if at == server)
            words = {"most": most + MORE_CONNECTIONS}
            found += [(server, *row) for row in rig.query(place, checks.SESSIONS, words)]
        return found


def consumers(rig: MergeRig) -> list[tuple[str, str, str]]:
    """Consumers of all queues, and positions on all nodes."""
    there = "select %s, queue_name, consumer_name from pgq.get_consumer_info()"
    here = "select 'at ' || %s, queue_name, consumer_name from pgq_node.local_state"
    return [
        (str(where), str(queue), str(name))
        for place in PLACES
        for text in (there, here)
        for where, queue, name in rig.query(place, text, [place])
    ]


def staging(rig: MergeRig) -> list[str]:
    """Tables in vedur_work that are not slots of tables that exist, or of events that pass."""
    text = (
        "select relname, relnamespace = 'vedur_work'::regnamespace, oid::text from pg_class"
        " where relkind in ('r', 'S', 'v', 'm')"
    )
    prefixes = tuple(stage_prefix(queue) for queue in (*PARTS, COMPANY))
    found = []
    for place in MERGED:
        rows = rig.query(place, text)
        known = {"log", *(oid for _, _, oid in rows)}
        for name in (name for name, work, _ in rows if work):
            if name.startswith("raw_") and place != FULL:
                continue
            own = next((name.removeprefix(p) for p in prefixes if name.startswith(p)), "")
            if own.partition("_")[0] not in {*known, "orders"}:
                found.append(f"{place}: {name}")
    return found


def copy_rows(rig: MergeRig) -> list[tuple[Any, ...]]:
    """Slices, unfinished progress, holds that still count."""
    return [row for place in MERGED for row in rig.query(place, checks.COPY_ROWS)]


def files(rig: MergeRig) -> list[str]:
    """More in TMPDIR than one Spark needs."""
    found = [p.name for p in rig.tmp.iterdir() if not p.name.startswith("hsperfdata")]
    return found if len(found) > checks.MOST_FILES else []


def status(rig: MergeRig, ticks: dict[str, int]) -> None:
    """No worker tells of a failure; `status` of some queues, in turns, says that all is well."""
    text = (
        "select queue_name, consumer_name, cur_error from pgq_node.local_state"
        " where cur_error <> ''"
    )
    until(lambda: [row for place in PLACES for row in rig.query(place, text)], "errors left")
    turn = sum(ticks.values())
    asked = (PROCESSES["worker"][turn % len(PARTS)], PROCESSES[STAND][turn % 3])

    def wrong() -> str:
        done = rig.commands.run(*(str(rig.lab.inis[ini]) for ini in asked), "status", "--json")
        if done.code != 0:
            return f"exit {done.code}: {done.err}"
        for told in json.loads(done.out):
            queue = told["queue"]
            for node in told["nodes"]:
                if node["errors"] or node["failure"] or node["tables_half"]:
                    return f"{queue}: {node}"
                if node["type"] != "root" and node["tick"] < ticks[queue]:
                    return f"{queue}: {node['name']} is at {node['tick']}, not at {ticks[queue]}"
        return ""

    until(wrong, "status")
