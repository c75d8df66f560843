"""The status page over HTTP, on a set in real databases."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fixtures.pg import VERSIONS, Servers, TestServer
from tests.labs.status_page import QUEUE, Browser, SetLab
from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.db.conninfo import with_params
from vedur.errors import DatabaseError
from vedur.node.info import NodeType
from vedur.node.state import set_consumer_error
from vedur.ops.session import Session

OpenPage = Callable[..., Browser]

ADDRESSES = ("/", "/index.json", "/nodes/dst", "/nodes/dst.json", "/healthz", "/readyz", "/metrics")


def test_the_set_as_html_and_json(lab: SetLab, open_page: OpenPage) -> None:
    lab.dbs["src"].execute("insert into shop.orders select i, 'x' from generate_series(1, 700) i")
    behind = lab.tick()
    lab.applied("dst", behind)
    page = open_page(lab.sessions["src"])
    answer = page.get("/")
    assert answer.code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "<h1>Queue replika</h1>" in answer.text
    for name in ("src", "dst", "eu"):
        assert f'href="/nodes/{name}"' in answer.text
    by_address = page.get("/index.json").json
    by_accept = page.get("/", Accept="application/json").json
    assert by_address["queue"] == by_accept["queue"] == QUEUE
    nodes = {node["name"]: node for node in by_address["nodes"]}
    assert list(nodes) == ["src", "dst", "eu"]
    assert (nodes["dst"]["lag"], nodes["dst"]["backlog"]) == (0.0, 0)
    assert nodes["dst"]["tick"] == behind
    # eu has not applied the tick with 700 orders
    assert nodes["eu"]["lag"] > 0
    assert nodes["eu"]["backlog"] >= 700
    assert nodes["eu"]["tick"] < behind
    assert [t["name"] for t in nodes["dst"]["tables"]] == ["shop.orders", "shop.lines"]
    assert {t["state"] for t in nodes["dst"]["tables"]} == {"ok"}
    assert by_address["problems"] == []


def test_one_node(lab: SetLab, open_page: OpenPage) -> None:
    tick = lab.uptodate()
    lab.log_batch("dst", tick - 1, tick, 4321, 0.5, 0.25, 0.125, 0.0625)
    lab.dbs["dst"].execute(
        "insert into vedur.copy_progress (queue_name, table_name, dest_table, step, step_name, "
        "slices, slices_done, rows_estimated, rows_done, bytes_done) "
        "values ('replika', 'shop.lines', 'shop.lines', 4, 'load', 16, 7, 1000, 450, 9800)"
    )
    page = open_page(lab.sessions["src"])
    text = page.get("/nodes/dst").text
    assert "4,321" in text and "938 ms" in text
    assert '<progress max="100" value="45"' in text
    found = page.get("/nodes/dst.json").json
    assert found["batches"][0]["events"] == 4321
    assert found["copies"][0]["rows_done"] == 450
    assert found["watermarks"]["local_watermark"] == tick
    root = page.get("/nodes/src.json").json
    assert root["queue"]["last_tick"] == tick
    assert {"dst_job", "eu_job"} <= {c["consumer_name"] for c in root["queue"]["consumers"]}
    assert sum(t["bytes"] for t in root["queue"]["tables"]) > 0
    assert "Queue and rotation" in page.get("/nodes/src").text


def test_reading_only(lab: SetLab, open_page: OpenPage) -> None:
    page = open_page(lab.sessions["src"])
    page.get("/")
    for method in ("POST", "PUT", "PATCH", "DELETE", "TRACE"):
        for address in ADDRESSES:
            answer = page.ask(address, method)
            assert answer.code == 405, (method, address)
    head = page.ask("/", "HEAD")
    assert (head.code, head.body) == (200, b"")
    # the server itself refuses to write for the page
    reader = page.page.source.reader
    assert len(reader._open) == 3  # type: ignore[attr-defined]
    for db in reader._open.values():  # type: ignore[attr-defined]
        with pytest.raises(DatabaseError, match="read-only transaction"):
            db.execute("create table public.written ()")


def test_wrong_addresses(lab: SetLab, open_page: OpenPage) -> None:
    page = open_page(lab.sessions["src"])
    assert page.get("/nothing").code == 404
    assert "no page at this address" in page.get("/nothing").text
    assert page.get("/nodes/nobody").code == 404
    assert page.get("/nodes/nobody.json").json == {
        "status": "fail",
        "reasons": ["there is no such node"],
    }
    assert page.get("/static/../app.py").code == 404
    assert page.get("/static/%2e%2e/app.py").code == 404


def test_every_answer_is_guarded(lab: SetLab, open_page: OpenPage) -> None:
    page = open_page(lab.sessions["src"])
    for address in (*ADDRESSES, "/nothing", "/static/page.css", "/static/page.js"):
        headers = page.get(address).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
    # nothing that the policy would have to forgive
    text = page.get("/").text + page.get("/nodes/dst").text
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! src=)|javascript:", text)
    # a name that some web site has pointed at the loopback address
    assert page.get("/", Host="evil.example").code == 421
    assert page.get("/", Host=f"localhost:{page.page.server.port}").code == 200


def test_known_under_further_names(lab: SetLab, open_page: OpenPage) -> None:
    page = open_page(lab.sessions["src"], web_hosts=("status.example.com",))
    assert page.get("/", Host="status.example.com").code == 200
    assert page.get("/", Host="other.example.com").code == 421


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a' onmouseover='alert(1)",
    "{{ 7 * 7 }}",
    "näme & \\ %s {} ;--",
)


def test_hostile_names_are_shown_as_text(lab: SetLab, open_page: OpenPage) -> None:
    for number, name in enumerate(HOSTILE):
        quoted = '"' + name.replace('"', '""') + '"'
        for db in lab.dbs.values():
            db.raw.execute(f"create table public.{quoted} (id int primary key)".encode())
        lab.add_tables(f"public.{name}")
        lab.dbs["eu"].value(
            "select pgq_node.register_location(%s, %s, %s, false)",
            [QUEUE, f"n{number}{name}", "host=127.0.0.1 port=1 dbname=nowhere"],
        )
    lab.uptodate()
    set_consumer_error(lab.dbs["eu"], QUEUE, lab.worker("eu"), " ".join(HOSTILE))
    page = open_page(lab.sessions["eu"])
    names = [node["name"] for node in page.get("/index.json").json["nodes"]]
    assert len(names) == 3 + len(HOSTILE)

    for name in names:
        address = f"/nodes/{quote(name, safe='')}"
        assert page.get(address).code == 200
        assert page.get(f"{address}.json").json["name"] == name
        assert page.get(f"{address}.json").headers["content-type"] == "application/json"
    both = page.get("/").text + page.get("/nodes/eu").text
    assert "<script>alert" not in both and "<img" not in both
    assert "' onmouseover='" not in both
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in both
    assert "{{ 7 * 7 }}" in both and "49" not in re.findall(r">([^<]*7 \* 7[^<]*)<", both)
    # and the metrics can still be read
    families = list(text_string_to_metric_families(page.get("/metrics").text))
    seen = {s.labels["node"] for f in families for s in f.samples if "node" in s.labels}
    assert seen == set(names)


def test_no_password_anywhere(lab: SetLab, open_page: OpenPage) -> None:
    secret = "hunter2xyzzy"
    place = with_params(lab.dbs["dst"].connstr, password=secret)
    gone = f"postgresql://joe:{secret}@127.0.0.1:1/nowhere"
    for name, location in (("dst", place), ("gone", gone)):
        lab.dbs["src"].value(
            "select pgq_node.register_location(%s, %s, %s, false)", [QUEUE, name, location]
        )
    message = f'could not connect with "host=x password={secret} dbname=y"'
    set_consumer_error(lab.dbs["dst"], QUEUE, lab.worker("dst"), message)
    mine = with_params(lab.sessions["src"].settings.db, password=secret)
    page = open_page(lab.sessions["src"], db=mine)
    for address in (*ADDRESSES, "/nodes/src", "/nodes/src.json", "/nodes/gone", "/nodes/gone.json"):
        answer = page.get(address)
        assert secret not in answer.text, address
    assert "password=***" in page.get("/nodes/dst").text
    assert page.get("/nodes/gone.json").json["failure"]


def test_ready_says_why_not(lab: SetLab, open_page: OpenPage) -> None:
    page = open_page(lab.sessions["dst"], web_max_lag=0.5)

    def ready() -> tuple[int, list[str]]:
        page.page.source._looked = None
        answer = page.get("/readyz")
        return answer.code, answer.json["reasons"]

    assert ready() == (200, [])
    lab.tick()
    lab.dbs["src"].execute("update pgq.tick set tick_time = tick_time - interval '2 seconds'")
    code, reasons = ready()
    assert code == 503 and len(reasons) == 1 and "behind, more than" in reasons[0]
    lab.uptodate()
    assert ready() == (200, [])
    set_consumer_error(lab.dbs["dst"], QUEUE, lab.worker("dst"), "division by zero")
    code, reasons = ready()
    assert code == 503 and reasons == ['worker "dst_job" cannot go on: division by zero']
    set_consumer_error(lab.dbs["dst"], QUEUE, lab.worker("dst"), None)
    lab.dbs["dst"].execute("update londiste.table_info set merge_state = 'in-copy' where nr = 1")
    assert ready() == (503, ["1 table(s) not in sync yet"])
    lab.dbs["dst"].execute("update londiste.table_info set merge_state = 'ok'")
    lab.dbs["dst"].execute("update pgq_node.local_state set paused = true")
    assert ready() == (503, ["the worker is paused"])


def test_a_ticker_that_stands_still_is_attention(lab: SetLab, open_page: OpenPage) -> None:
    lab.dbs["src"].execute("update pgq.tick set tick_time = tick_time - interval '10 minutes'")
    page = open_page(lab.sessions["src"])
    found = page.get("/index.json").json["problems"]
    assert [(p["severity"], p["kind"], p["node"]) for p in found] == [("fail", "ticker", "src")]
    assert "start pgqd" in found[0]["action"]
    assert "start pgqd" in page.get("/").text
    assert page.get("/readyz").code == 503


def test_refused_events_and_quarantine(lab: SetLab, open_page: OpenPage) -> None:
    db = lab.dbs["dst"]
    db.execute(
        "insert into vedur.replay_error (queue_name, consumer_name, prev_tick, tick_id, ev_id, "
        "ev_txid, ev_type, table_name, dest_table, row_key, sqlstate, message, attempts) values "
        "('replika', 'dst_job', 1, 2, 77, 9, 'I', 'shop.orders', 'shop.orders', 'id=5', '23514', "
        "'violates check constraint \"positive\"', 3)"
    )
    db.execute(
        "insert into vedur.quarantine (queue_name, consumer_name, prev_tick, tick_id, ev_id, "
        "ev_txid, ev_type, table_name, dest_table, holds, cause) select 'replika', 'dst_job', 1, "
        "2, i, 9, 'I', 'shop.lines', 'shop.lines', 'row', case i when 1 then 'error' else 'held' "
        "end from generate_series(1, 4) i"
    )
    page = open_page(lab.sessions["src"])
    found = page.get("/nodes/dst.json").json
    assert found["replay_errors"][0]["ev_id"] == 77
    assert found["quarantine"][0] | {"seconds": 0} == {
        "table_name": "shop.lines",
        "events": 4,
        "refused": 1,
        "held": 3,
        "skipped": 0,
        "seconds": 0,
    }
    assert [p["kind"] for p in found["problems"]] == ["worker", "quarantine"]
    text = page.get("/nodes/dst").text
    assert "violates check constraint &#34;positive&#34;" in text
    assert "id=5" in text and "23514" in text
    assert "quarantine replay" in text


def test_the_local_database_goes_and_comes_back(
    servers: Servers,
    oldest: TestServer,
    make_db_on: Callable[..., vdb.Database],
    open_page: OpenPage,
) -> None:
    lab = SetLab()
    lab.add_node("src", make_db_on(oldest), NodeType.ROOT)
    server = servers.private(max(VERSIONS))
    with vdb.connect(server.connstr(), autocommit=True) as db:
        lab.add_node("dst", db, NodeType.LEAF)
        lab.uptodate()
    lab.close()
    page = open_page(lab.sessions["dst"])
    assert page.get("/healthz").json == {"status": "ok"}
    assert page.get("/").code == 200
    server.stop("immediate")
    page.page.source._looked = None
    assert page.get("/healthz").code == 503
    old = page.get("/")
    assert old.code == 503 and "<h1>Queue replika</h1>" in old.text and "old:" in old.text
    assert page.get("/readyz").code == 503
    assert "vedur_up 0.0" in page.get("/metrics").text
    assert "vedur_node_lag_seconds{" not in page.get("/metrics").text
    server.start()
    page.page.source._looked = None
    assert page.get("/healthz").code == 200
    assert page.get("/").code == 200
    assert "vedur_up 1.0" in page.get("/metrics").text


def test_a_dead_neighbour_is_part_of_the_picture(
    servers: Servers,
    oldest: TestServer,
    make_db_on: Callable[..., vdb.Database],
    open_page: OpenPage,
) -> None:
    lab = SetLab()
    lab.add_node("src", make_db_on(oldest), NodeType.ROOT)
    server = servers.private(max(VERSIONS))
    with vdb.connect(server.connstr(), autocommit=True) as db:
        lab.add_node("dst", db, NodeType.LEAF)
        lab.uptodate()
    page = open_page(lab.sessions["src"])
    assert page.get("/index.json").json["problems"] == []
    server.stop("immediate")
    lab.close()
    page.page.source._looked = None
    found = page.get("/index.json").json
    assert [(p["severity"], p["kind"], p["node"]) for p in found["problems"]] == [
        ("fail", "node", "dst")
    ]
    assert 'class="box fail gone"' in page.get("/").text
    assert page.get("/readyz").code == 200  # the root itself is well
    assert 'vedur_node_up{node="dst",queue="replika"} 0.0' in page.get("/metrics").text


def test_no_node_at_all(
    oldest: TestServer, make_db_on: Callable[..., vdb.Database], open_page: OpenPage
) -> None:
    db = make_db_on(oldest, "bare", autocommit=True)
    session = Session(LondisteSettings(db=db.connstr, queue_name=QUEUE, config_file="/x.ini"))
    page = open_page(session)
    assert page.get("/").code == 503
    assert "create-root" in page.get("/").text
    assert page.get("/healthz").code == 200
    assert page.get("/readyz").code == 503


def test_a_role_that_may_only_look(lab: SetLab, open_page: OpenPage, oldest: TestServer) -> None:
    """The rights of docs/how-to/operate.md: what is not granted is a note, not a failure."""
    db = lab.dbs["src"]
    if not db.value("select 1 from pg_roles where rolname = 'page_viewer'"):
        db.execute("create role page_viewer login in role pgq_reader, londiste_reader")
    lab.dbs["src"].execute("revoke all on vedur.quarantine, vedur.replay_error from page_viewer")
    mine = with_params(lab.sessions["src"].settings.db, user="page_viewer")
    page = open_page(lab.sessions["src"], db=mine)
    found = page.get("/nodes/src.json").json
    assert found["failure"] is None
    assert found["queue"]["last_tick"] is not None
    assert [t["state"] for t in found["tables"]] == ["ok", "ok"]
    assert found["withheld"] == ["errors", "the quarantine"]
    assert found["problems"] == found["notes"] == []
    assert (
        "only roles that run nodes may read it: errors, the quarantine"
        in page.get("/nodes/src").text
    )
    assert page.get("/").code == 200
    # what every viewer needs is trouble
    db.execute("revoke execute on function pgq.get_consumer_info(text) from public, pgq_reader")
    page.page.source._looked = None
    found = page.get("/nodes/src.json").json
    assert [p["kind"] for p in found["problems"]] == ["rights"]
    assert "cannot read the queue" in found["problems"][0]["what"]


def test_on_upstreams_schemas(upstream_pair: SetLab, open_page: OpenPage) -> None:
    upstream_pair.tick()
    page = open_page(upstream_pair.sessions["src"])
    found = page.get("/index.json").json
    for node in found["nodes"]:
        assert node["notes"] == [], node["name"]
        assert node["failure"] is None
    assert page.get("/nodes/dst").code == 200


def test_paused_is_shown_with_the_command(lab: SetLab, open_page: OpenPage) -> None:
    lab.dbs["dst"].execute("update pgq_node.local_state set paused = true")
    page = open_page(lab.sessions["src"])
    text = page.get("/nodes/dst").text
    assert "resume --node=dst" in text
    assert "leaf, paused" in text
