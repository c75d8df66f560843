"""Random changes of a captured table, replayed row by row elsewhere after every transaction.

A `Case` is all that a number decides: how the table is captured, which triggers, policies and
partitions it has, whether its key is deferrable, and every statement. `run` stops with
`Differs` at the first transaction after which the replay (`tests/oracle/plain.py`) is not the
table.
The same number gives the same run again; `Differs.script` is the run as SQL.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.oracle import plain
from vedur.db import Database
from vedur.errors import DatabaseError

KEYS = 7
ROLE = "fuzz_writer"
ATTACH = "attach partition t2 for values from (4) to (maxvalue)"

#: What a trigger of a user does to other rows of the table, or to the row that it fired for; {k} is
#: the key of that row. None of them may fail for a key that is there already.
DEEDS = {
    "update other": "update t set a = a + 100 where id = {k} % {keys} + 1",
    "update same": "update t set a = a + 10 where id = {k} and a < 1000",
    "update all": "update t set a = a + 1",
    "delete other": "delete from t where id = {k} % {keys} + 1 and id <> {k}",
    "delete same": "delete from t where id = {k} and a %% 3 = 0",
    "insert other": "insert into t select {k} % {keys} + 1, 7, 'deed'"
    " where not exists (select from t where id = {k} % {keys} + 1)",
    "again": "insert into t select {k}, 8, 'again' where not exists (select from t where id = {k})",
    "reborn": "with d as (delete from t where id = {k} returning *)"
    " insert into t select id, a + 5, b from d",
    "move": "update t set id = id % {keys} + 1 where id = {k} and not exists"
    " (select from t x where x.id = t.id % {keys} + 1)",
    "twice": "delete from t where id = {k}; insert into t values ({k}, 9, 'twice')",
}

#: "set" is a table of a root (`londiste.local_add_table`), where TRUNCATE of a partition is
#: captured too; "row", "urlenc" and "bulk" are `vedur.create_capture`, the others the contract's
#: triggers.
CAPTURES = (
    "set",
    "set",
    "set",
    "row",
    "row",
    "urlenc",
    "bulk",
    "jsontriga",
    "logutriga",
    "sqltriga",
)

#: What a table of a set may be added with.
WORDS = ((), ("tgflags=J",), ("tgflags=L",), ("tgflags=Q",), ("backup",), ("tgflags=J", "backup"))

#: Done and undone, these leave the number of the transaction in the catalog; done, they make every
#: session plan anew, and change no row.
UNDONE = ("truncate t", "alter table t add x int", "alter table t alter a type bigint")
HARMLESS = (
    "grant select on t to public",
    "alter table t alter b set storage external",
    "create index on t (a)",
)


class Differs(AssertionError):
    """The replay is not the table."""

    def __init__(self, message: str, script: str) -> None:
        super().__init__(message)
        self.script = script


@dataclass
class Case:
    """One run: what `seed` decides."""

    seed: int
    transactions: int = 25
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = self.rng = random.Random(self.seed)
        self.capture = rng.choice(CAPTURES)
        self.deferrable = rng.choice(["", "", "deferrable", "deferrable initially deferred"])
        if self.capture == "bulk":
            self.deferrable = ""
        self.partitions = self.capture != "bulk" and rng.random() < 0.5
        self.contract = self.capture.endswith("triga")
        self.policies = rng.random() < 0.3
        self.words = rng.choice(WORDS)
        self.own_reference = rng.random() < 0.3 and not self.partitions
        self.triggers = rng.choice([0, 1, 1, 2, 3])
        if self.policies and self.contract:
            # They look at the table as the role that writes, which does not see all rows: what is
            # changed from within a statement is logged in plain order (docs/design/capture.md).
            self.own_reference, self.triggers, self.deferrable = False, 0, ""

    def __str__(self) -> str:
        words = [self.capture, self.deferrable, f"{self.triggers} triggers"]
        words += self.words if self.capture == "set" else ()
        words += [w for w in ("partitions", "policies", "own_reference") if getattr(self, w)]
        return f"seed {self.seed}: " + ", ".join(w for w in words if w)

    def run(self, root: Database, leaf: Database) -> int:
        """Do it; both databases are fresh, the root has queue `q`. How many changes were kept."""
        root.execute("set statement_timeout = '60s'")
        for text in self._setup():
            self._do(root, text)
        leaf.execute("create table t (id int primary key, a int, b text, p int)")
        leaf.commit()
        kept, last = 0, 0
        for _ in range(self.transactions):
            kept += self._transaction(root)
            last = self._check(root, leaf, last)
        return kept

    def _do(self, db: Database, text: str) -> None:
        self.log.append(text + ";")
        db.execute(text.replace("%", "%%"), {})

    # the table

    def _setup(self) -> Iterator[str]:
        key = f"constraint t_key primary key (id) {self.deferrable}"
        part = "partition by range (id)" if self.partitions else ""
        yield f"create table t (id int, a int, b text, p int, {key}) {part}"
        if self.partitions:
            yield "create table t1 partition of t for values from (minvalue) to (4)"
            if self.rng.random() < 0.5:
                yield "create table t2 partition of t for values from (4) to (maxvalue)"
            else:  # its columns stand in another order, and there was one more
                yield "create table t2 (b text, x int, p int, id int not null, a int)"
                yield "alter table t2 drop x"
                yield f"alter table t {ATTACH}"
        if self.own_reference and not self.deferrable:
            deed = self.rng.choice(["cascade", "set null"])
            foreign = f"foreign key (p) references t on delete {deed} on update cascade"
            yield f"alter table t add {foreign}"
        yield from self._functions()
        yield from self._capture()
        for number in range(self.triggers):
            yield from self._trigger(number)
        if self.policies:
            yield "alter table t enable row level security"
            yield f"create policy all_rows on t to {ROLE} using (id % 5 <> 4) with check (true)"
            yield f"grant all on t{', t1, t2' if self.partitions else ''} to {ROLE}"
            yield f"grant pgq_writer to {ROLE}"

    def _capture(self) -> Iterator[str]:
        if self.capture == "set":
            words = ", ".join(f"'{word}'" for word in self.words)
            yield "select * from pgq_node.register_location('q', 'here', 'dbname=here', false)"
            yield "select * from pgq_node.create_node('q', 'root', 'here', 'w', null, null, null)"
            yield f"select * from londiste.local_add_table('q', 't', array[{words}]::text[])"
        elif self.contract:
            args = "'q'" + (", 'ev_extra1=''public.t'''" if self.partitions else "")
            if self.rng.random() < 0.3:
                args += ", 'backup'"
            constraint = "constraint" if self.deferrable else ""
            deferred = "deferrable initially deferred" if self.deferrable else ""
            yield (
                f"create {constraint} trigger _l after insert or update or delete on t {deferred}"
                f" for each row execute function pgq.{self.capture}({args})"
            )
            yield "create trigger _lt after truncate on t execute function pgq.sqltriga('q')"
        else:
            form = "urlenc" if self.capture == "urlenc" else "json"
            mode = "bulk" if self.capture == "bulk" else "row"
            yield f"select vedur.create_capture('q', 't', '_l', '{form}', 'IUDT', '{mode}')"

    def _functions(self) -> Iterator[str]:
        """Of SQL, called for each row of a statement; a key that is deleted does not come again
        this way (docs/design/capture.md)."""
        for name in ("update other", "update same", "delete other", "insert other"):
            text = DEEDS[name].format(k="$1", keys=KEYS).replace("%%", "%")
            yield (
                f"create function {name.replace(' ', '_')}(int) returns int language plpgsql"
                f" as $f$ begin {text}; return $1; end $f$"
            )

    def _trigger(self, number: int) -> Iterator[str]:
        rng = self.rng
        name = rng.choice(["A_", "_a", "_m", "zz_"]) + f"user{number}"
        kind = rng.choice(["after", "after", "after", "before", "deferred"])
        ops = rng.sample(["insert", "update", "delete"], rng.choice([1, 2, 3]))
        deeds = rng.sample(sorted(DEEDS), rng.choice([1, 2]))
        depth = rng.choice([1, 1, 2])
        body = "; ".join(DEEDS[d].format(k="_k", keys=KEYS).replace("%%", "%") for d in deeds)
        # What a deferred trigger does fires it again, at the same depth: three times are enough.
        often = "coalesce(nullif(current_setting('fuzz.often', true), ''), '0')::int"
        mark, guard = "", f"pg_trigger_depth() <= {depth}"
        if kind == "deferred":
            mark = f"perform set_config('fuzz.often', ({often} + 1)::text, true); "
            guard = f"{often} < 3"
        yield (
            f"create function user{number}() returns trigger language plpgsql as $f$"
            " declare _k int; begin"
            " if tg_op = 'DELETE' then _k := old.id; else _k := new.id; end if;"
            f" if {guard} and _k % 3 <> {rng.randrange(4)} then {mark}{body};"
            " end if; if tg_op = 'DELETE' then return old; end if; return new; end $f$"
        )
        when = f"{'before' if kind == 'before' else 'after'} {' or '.join(ops)}"
        constraint = "constraint" if kind == "deferred" else ""
        deferred = "deferrable initially deferred" if kind == "deferred" else ""
        yield (
            f"create {constraint} trigger {name!s} {when} on t {deferred}"
            f" for each row execute function user{number}()"
        ).replace(f"trigger {name}", f'trigger "{name}"')

    # the changes

    def _transaction(self, root: Database) -> int:
        rng, kept = self.rng, 0
        self._do(root, "begin" + rng.choice(["", "", " isolation level repeatable read"]))
        if self.policies and rng.random() < 0.5:
            self._do(root, f"set local role {ROLE}")
        depth = 0
        for _ in range(rng.randint(1, 5)):
            text = self._statement()
            self._do(root, f"savepoint s{depth}")
            try:
                self._do(root, text)
                kept += 1
                depth += 1
            except DatabaseError as error:
                self.log.append(f"-- {str(error).splitlines()[0]}")
                self._do(root, f"rollback to s{depth}")
            if depth and rng.random() < 0.1:
                depth = rng.randrange(depth)
                self._do(root, f"rollback to s{depth}")
        try:
            self._do(root, "commit" if rng.random() < 0.9 else "rollback")
        except DatabaseError as error:
            self.log.append(f"-- {str(error).splitlines()[0]}")
        return kept

    def _statement(self) -> str:
        rng = self.rng
        k, v = rng.randint(1, KEYS), rng.randint(0, 99)
        some = rng.choice([
            f"id = {k}", f"id >= {k}", f"id % 2 = {k % 2}", "true", f"a % 3 = {k % 3}",
        ])  # fmt: skip
        ref = "null" if not self.own_reference else f"nullif({rng.randint(1, KEYS)}, {k})"
        rows = ", ".join(
            f"({n}, {v}, 'r{n}', null)" for n in rng.sample(range(1, KEYS + 1), rng.randint(1, 4))
        )
        free = "not exists (select from t x where x.id = g)"
        choices = [
            f"insert into t values {rows}",
            f"insert into t select g, {v}, 'g', null from generate_series(1, {k}) g where {free}",
            f"update t set a = {v} where {some}",
            f"update t set a = a + 1, b = 'u{v}' where {some}",
            f"update t set p = {ref} where {some} and id <> {k}",
            f"update t set id = {KEYS + 1} - id where {some}",
            f"update t set id = id + 1 where {some}",
            f"update t set id = id % {KEYS} + 1 where {some}",
            f"update t set id = {k} where a % 5 = {v % 5}",
            f"update t set b = 'f' || update_other(id) where {some}",
            f"update t set a = {v} where {some} returning update_same(id)",
            f"update t set a = {v} where {some} returning delete_other(id), insert_other(id)",
            f"insert into t select g, insert_other(g), 'h', null from generate_series(1, {k}) g"
            f" where {free}",
            f"delete from t where {some}",
            f"delete from t where {some} returning update_other(id)",
            f"with d as (delete from t where {some} returning *) insert into t"
            f" select id % {KEYS} + 1, a, 'moved', null from d",
            f"with u as (update t set a = a + 1 where {some} returning id) delete from t"
            f" where id in (select id % {KEYS} + 1 from u)",
            f"with i as (insert into t values {rows} returning id) update t set a = -1"
            f" where id in (select id + 1 from i)",
            f"delete from t where id = {k}; insert into t values ({k}, {v}, 'back', null)",
            f"update t set id = -1 where id = {k}; update t set id = {k} where id = {k % KEYS + 1};"
            f" update t set id = {k % KEYS + 1} where id = -1",
            f"merge into t using (select {k} as k union select {k % KEYS + 1}) v on t.id = v.k"
            f" when matched and a % 2 = 0 then delete when matched then update set a = a + 1"
            f" when not matched then insert (id, a, b) values (k, {v}, 'merged')",
            "truncate t",
        ]  # fmt: skip
        if self.deferrable:
            j = k % KEYS + 1
            choices += 2 * [
                "set constraints all deferred",
                "set constraints all immediate",
                f"insert into t values ({k}, {v}, 'double', null)",
                f"delete from t where id = {k} and b <> 'double'",
                f"update t set id = {k} where id = {j} and a % 2 = 0",
                f"update t set id = {j} where b like 'r%'",
            ]
        else:
            choices += [
                f"insert into t values {rows} on conflict (id) do update set a = excluded.a + 1",
                f"insert into t values {rows} on conflict do nothing",
            ]
        choices += [
            f"savepoint undone; {rng.choice(UNDONE)}; rollback to undone",
            rng.choice(HARMLESS),
        ]
        if self.partitions:
            # Events that wait for the end of the transaction go with the partition's triggers.
            fire = "set constraints all immediate; " if self.deferrable else ""
            choices.append(f"{fire}alter table t detach partition t2; alter table t {ATTACH}")
        if self.partitions and self.capture == "set":
            choices += 2 * [
                rng.choice(["truncate t1", "truncate t2", "truncate t1, t2", "truncate t2, t"])
            ]
        if self.policies and self.contract:
            choices = [c for c in choices if "_other(" not in c and "_same(" not in c]
        return rng.choice(choices)

    # the proof

    def _check(self, root: Database, leaf: Database, last: int) -> int:
        rows = root.query("select * from pgq.event_1 where ev_id > %s order by ev_id", [last])
        told = [f"-- event {r.ev_id}: {r.ev_type} {r.ev_data}" for r in rows]
        self.log += told
        for row in rows if not (self.contract and self.partitions) else ():
            if row.ev_type.startswith("{") and json.loads(row.ev_type)["table"] != ["public", "t"]:
                raise self._differs(f"another table in {row.ev_type}")
        try:
            plain.apply(leaf, rows)
            leaf.commit()
        except DatabaseError as error:
            raise self._differs(f"replay fails: {error}") from error
        query = "select id, a, b, p from t order by id"
        here, there = root.query(query), leaf.query(query)
        leaf.commit()
        if list(map(tuple, here)) != list(map(tuple, there)):
            raise self._differs(f"table {list(map(tuple, here))}, replay {list(map(tuple, there))}")
        return rows[-1].ev_id if rows else last

    def _differs(self, problem: str) -> Differs:
        return Differs(f"{self}\n{problem}\n" + "\n".join(self.log[-40:]), "\n".join(self.log))
