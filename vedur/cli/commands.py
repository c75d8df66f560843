"""All commands as data: words, options, examples. What they do is in the modules they name."""

from __future__ import annotations

from vedur.cli.grammar import Command, Option, option

_NODES = "Nodes"
_TABLES = "Tables and sequences"
_INFO = "Information"
_PROOF = "Scripts and proof"
_RUN = "Running"

_JSON = option("--json", help="print JSON")
_ALL = option("--all", help="all that are available")
_NODE = option("--node", help="the node to act on (default: the local one)", metavar="NODE")
_CONSUMER = option("--consumer", help="the consumer (default: the worker)", metavar="NAME")
_NOCHECK = option("--nocheck", help="do not check that CONNSTR leads to the database of INI")
_PROVIDER = option(
    "--provider",
    help="how to reach the node to read from (or initial_provider_location in INI)",
    metavar="CONNSTR",
)
_SKIP_NON_EXISTING = option("--skip-non-existing", help="pass over names that do not exist")

_ADD_TABLE: tuple[Option, ...] = (
    option("--all", help="every table that the provider (on the root: the database) has"),
    option("--wait-sync", help="return when the first copy is done"),
    option("--dest-table", help="the table's name here, if it differs", metavar="NAME"),
    option(
        "--copy-condition",
        "--where",
        help="replicate only rows for which this SQL condition holds; it holds for the first "
        "copy, for changes and for compare",
        metavar="CONDITION",
        dest="copy_condition",
    ),
    option("--create", help="create the table if missing: columns, defaults, primary key"),
    option(
        "--create-full",
        help="create it with constraints, indexes, sequences, triggers, rules, grants, owner",
    ),
    option("--expect-sync", help="the rows are there already: no first copy"),
    option("--skip-truncate", help="keep the rows that are in the table before the first copy"),
    option("--no-triggers", help="make no triggers"),
    option(
        "--trigger-flags",
        help="when the trigger fires and how it writes: B before, A after, I U D operations, "
        "L urlencoded, Q SQL, J JSON, S skip",
        metavar="BAIUDLQJS",
    ),
    option(
        "--trigger-arg", help="argument of the trigger (repeatable)", metavar="ARG", repeat=True
    ),
    option("--handler", help="table handler, see show-handlers", metavar="NAME"),
    option("--handler-arg", help="argument of it (repeatable)", metavar="KEY=VALUE", repeat=True),
    option("--merge-all", help="merge the table from all queues that have it"),
    option("--no-merge", help="do not merge it from other queues"),
    option(
        "--max-parallel-copy",
        help="merged tables: copies into one destination that may run at a time (stored)",
        metavar="N",
        kind=int,
    ),
    _SKIP_NON_EXISTING,
    option("--force", help="ignore some warnings"),
)

COMMANDS: tuple[Command, ...] = (
    Command(
        "create-root",
        "make the database of INI the root of a new set",
        "nodes:create_root",
        _NODES,
        "[NODE [CONNSTR]]",
        most=2,
        details="Installs the SQL and creates the queue. NODE is the name of the node, CONNSTR "
        "how other nodes reach it; both may come from INI (node_name, public_node_location).",
        options=(_NOCHECK,),
        examples=(
            ("src.ini create-root src 'host=db1 dbname=shop'", "the node where changes are made"),
        ),
        side="admin",
    ),
    Command(
        "create-branch",
        "make it a node that others can read from",
        "nodes:create_branch",
        _NODES,
        "[NODE [CONNSTR]]",
        most=2,
        details="A branch keeps a copy of the queue, and tables if they are added.",
        options=(
            _PROVIDER,
            option(
                "--sync-watermark",
                help="keep positions together with these nodes only",
                metavar="NODE,...",
            ),
            _NOCHECK,
        ),
        examples=(
            (
                "mid.ini create-branch mid 'host=db2 dbname=x' --provider='host=db1 dbname=x'",
                "a node between root and leafs",
            ),
        ),
        side="admin",
    ),
    Command(
        "create-leaf",
        "make it a node that only reads",
        "nodes:create_leaf",
        _NODES,
        "[NODE [CONNSTR]]",
        most=2,
        options=(
            _PROVIDER,
            option("--merge", help="merge into this combined queue", metavar="QUEUE"),
            _NOCHECK,
        ),
        examples=(
            (
                "dst.ini create-leaf dst 'host=db3 dbname=shop' --provider='host=db1 dbname=shop'",
                "a replica of the root on db1",
            ),
        ),
        side="admin",
    ),
    Command(
        "drop-node",
        "take a node out of the set",
        "nodes:drop_node",
        _NODES,
        "NODE",
        least=1,
        most=1,
        details="Its tables stay as they are, without triggers. Nodes that cannot be reached are "
        "named in a warning.",
        examples=(("src.ini drop-node dst", "the set goes on without dst"),),
        side="admin",
    ),
    Command(
        "pause",
        "let a worker finish its batch and wait",
        "nodes:pause",
        _NODES,
        options=(_NODE, _CONSUMER),
        examples=(("dst.ini pause", "stop the changes coming in, keep the position"),),
        side="admin",
    ),
    Command(
        "resume",
        "let a paused worker go on",
        "nodes:resume",
        _NODES,
        options=(_NODE, _CONSUMER),
        examples=(("dst.ini resume", "go on"),),
        side="admin",
    ),
    Command(
        "change-provider",
        "read from another node, without a new copy",
        "nodes:change_provider",
        _NODES,
        options=(
            option("--provider", help="name of the node to read from", metavar="NODE"),
            _NODE,
        ),
        examples=(("dst.ini change-provider --provider=mid", "dst now reads from mid"),),
        side="admin",
    ),
    Command(
        "wait-root",
        "wait until the node has what the root has now",
        "waiting:wait_root",
        _NODES,
        examples=(("dst.ini wait-root", "then everything committed before is here"),),
    ),
    Command(
        "wait-provider",
        "wait until the node has what its provider has now",
        "waiting:wait_provider",
        _NODES,
        examples=(("dst.ini wait-provider", "the same, one step up the cascade"),),
    ),
    Command(
        "add-table",
        "begin to replicate tables",
        "tables:add_table",
        _TABLES,
        "TABLE...",
        most=None,
        details="First on the root, then on the nodes that shall have them; there a first copy "
        "follows, made by the worker. TABLE is schema.name (default schema: public) or a glob "
        "with * and ?. A table needs a primary key.",
        options=_ADD_TABLE,
        examples=(
            ("src.ini add-table shop.orders shop.items", "offer two tables"),
            ("dst.ini add-table 'shop.*' --create-full --wait-sync", "take all of a schema"),
            (
                "dst.ini add-table shop.orders --dest-table=eu.orders --where=\"region='eu'\"",
                "some rows, under another name",
            ),
        ),
        side="admin",
    ),
    Command(
        "remove-table",
        "stop replicating tables",
        "tables:remove_table",
        _TABLES,
        "TABLE...",
        most=None,
        details="On the root: in the whole set. The tables and their rows stay.",
        options=(_ALL,),
        examples=(("dst.ini remove-table shop.items", "dst keeps its rows as they are now"),),
        side="admin",
    ),
    Command(
        "add-seq",
        "begin to replicate sequences",
        "tables:add_seq",
        _TABLES,
        "SEQUENCE...",
        most=None,
        details="The root publishes values ahead of time, so a replica's sequence is never behind.",
        options=(
            _ALL,
            option("--create", help="create the sequence if missing"),
            option("--create-full", help="the same as --create"),
            _SKIP_NON_EXISTING,
        ),
        examples=(("src.ini add-seq shop.orders_id_seq", "publish it"),),
        side="admin",
    ),
    Command(
        "remove-seq",
        "stop replicating sequences",
        "tables:remove_seq",
        _TABLES,
        "SEQUENCE...",
        most=None,
        options=(_ALL,),
        examples=(("dst.ini remove-seq shop.orders_id_seq", "it keeps its value"),),
        side="admin",
    ),
    Command(
        "resync",
        "copy tables again",
        "tables:resync",
        _TABLES,
        "TABLE...",
        most=None,
        options=(_ALL,),
        examples=(("dst.ini resync shop.orders", "throw the rows away and copy them anew"),),
        side="admin",
    ),
    Command(
        "wait-sync",
        "wait until the first copy of all tables is done",
        "waiting:wait_sync",
        _TABLES,
        examples=(("dst.ini wait-sync", "returns when every table is ok"),),
    ),
    Command(
        "status",
        "show the tree of nodes with lag, ticks and errors",
        "listing:status",
        _INFO,
        details="Tables: in sync / being copied / in the set but not on the node. An error that "
        "stops a worker is shown on a line of its own.",
        options=(
            option("--dead", help="do not ask this node (repeatable)", metavar="NODE", repeat=True),
            option("--compact", help="one line per node"),
            _JSON,
        ),
        examples=(("src.ini status", "the whole set"), ("src.ini status --json", "for programs")),
    ),
    Command(
        "members",
        "list the nodes and how they are reached",
        "listing:members",
        _INFO,
        options=(_JSON,),
        examples=(("src.ini members", "passwords are masked"),),
    ),
    Command(
        "node-info",
        "show the local node: type, health, connect strings",
        "listing:node_info",
        _INFO,
        options=(_JSON,),
        examples=(("dst.ini node-info", "what INI describes"),),
    ),
    Command(
        "node-status",
        "show the local node between provider and subscribers",
        "listing:node_status",
        _INFO,
        options=(_JSON,),
        examples=(("dst.ini node-status", "a part of status"),),
    ),
    Command(
        "tables",
        "list the replicated tables and their states",
        "listing:tables",
        _INFO,
        details="With -v also the progress of first copies that are under way.",
        options=(option("--names-only", help="print the names alone"), _JSON),
        examples=(
            ("dst.ini tables", "merge_state None: not yet copied; ok: in sync"),
            ("-v dst.ini tables", "how far the copies are"),
        ),
    ),
    Command(
        "seqs",
        "list the replicated sequences",
        "listing:seqs",
        _INFO,
        options=(_JSON,),
        examples=(("dst.ini seqs", "last_value is what the root has published"),),
    ),
    Command(
        "missing",
        "list tables and sequences that are not replicated",
        "listing:missing",
        _INFO,
        options=(_JSON,),
        examples=(("dst.ini missing", "on a node: what the set has and the node has not"),),
    ),
    Command(
        "show-handlers",
        "list table handlers, or describe some",
        "listing:show_handlers",
        _INFO,
        "[HANDLER...]",
        most=None,
        examples=(("dst.ini show-handlers londiste", "its arguments"),),
    ),
    Command(
        "execute",
        "run SQL scripts on the root and, in order, on all nodes",
        "proof:execute",
        _PROOF,
        "FILE...",
        least=1,
        most=None,
        details="Each script is one transaction; begin and commit inside are ignored, and what "
        "cannot be part of a transaction is refused. Every node runs it at the same place in the "
        "stream of changes. A script is known by its file name and runs once.\n\n"
        "Comment lines before the first statement say where it runs: --*-- Local-Table: a, b "
        "means nodes that have these tables, and @a@ in the text is the node's name of it. Other "
        "keys: Local-Sequence, Local-Destination, Need-Table, Need-Sequence, Need-Function, "
        "Need-Schema, Need-View.",
        examples=(("src.ini execute add_column.sql", "DDL for the whole set"),),
        side="admin",
    ),
    Command(
        "compare",
        "prove that tables are equal to the provider's",
        "proof:compare",
        _PROOF,
        "[TABLE...]",
        most=None,
        details="Counts and hashes both sides at the same moment of the stream. Without names: "
        "all local tables. The exit code is the number of tables that differ.",
        options=(
            option("--force", help="begin although the node is far behind"),
            option("--count-only", help="count rows, do not hash them"),
            option("--rows", help="name the rows that differ"),
            _JSON,
        ),
        examples=(("dst.ini compare", "all tables"), ("dst.ini compare shop.orders", "one")),
        side="repair",
    ),
    Command(
        "repair",
        "make the rows that differ equal to the provider's",
        "proof:repair",
        _PROOF,
        "[TABLE...]",
        most=None,
        details="Shows what would be done; with --apply it is done, in one transaction per table. "
        "Running it again finds nothing. Without names: all local tables.",
        options=(
            option("--apply", help="write the rows"),
            option("--force", help="begin although the node is far behind"),
            option(
                "--where",
                "--repair-where",
                help="look only at rows for which this SQL condition holds",
                metavar="CONDITION",
                dest="where",
            ),
            _JSON,
        ),
        examples=(
            ("dst.ini repair shop.orders", "the plan"),
            ("dst.ini repair shop.orders --apply", "the deed"),
        ),
        side="repair",
    ),
    Command(
        "check",
        "compare the structure of tables with the provider's",
        "proof:check",
        _PROOF,
        "[TABLE...]",
        most=None,
        details="Column by column: presence, type, NOT NULL, collation, generated; and the primary "
        "key. The exit code is the number of tables that differ.",
        options=(_JSON,),
        examples=(("dst.ini check", "prints nothing when all is well"),),
    ),
    Command(
        "fkeys",
        "print the DDL of foreign keys of replicated tables",
        "proof:fkeys",
        _PROOF,
        "[TABLE...]",
        most=None,
        details="Those that exist, and those that a first copy has dropped and will restore.",
        options=(_JSON,),
        examples=(("dst.ini fkeys", "from and to every local table"),),
    ),
    Command(
        "worker",
        "run the worker of the node",
        "worker:worker",
        _RUN,
        details="With -d in the background: returns when the worker is alive. -s ends it after "
        "the batch in hand, -r makes it read INI again.",
        examples=(
            ("-d dst.ini worker", "start"),
            ("-r dst.ini", "INI has changed"),
            ("-s dst.ini", "stop"),
        ),
    ),
)
