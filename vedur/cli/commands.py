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
_MAX_WAIT = option(
    "--max-wait",
    help="give up if the node lags and does not come up within this time (default 60)",
    metavar="SECONDS",
    kind=float,
)
_ON_ERROR = option(
    "--on-error",
    help="what becomes of events that this node refuses: stop, quarantine-row or quarantine-table "
    "(default: on_error in INI)",
    metavar="POLICY",
)
_SKIP_NON_EXISTING = option("--skip-non-existing", help="pass over names that do not exist")

_ADD_TABLE: tuple[Option, ...] = (
    option("--all", help="every table that the provider (on the root: the database) has"),
    option("--wait-sync", help="return when the first copy is done"),
    option("--dest-table", help="the table's name here, if it differs", metavar="NAME"),
    option(
        "--copy-condition",
        help="replicate only rows for which this SQL condition holds; it holds for the first "
        "copy, for changes and for compare; not on the root, which has all rows",
        metavar="CONDITION",
    ),
    option("--where", help="the same as --copy-condition", metavar="CONDITION"),
    option(
        "--columns",
        help="replicate only these columns, c=NAME under another name here; the key must be "
        "among them",
        metavar="a,b,c=NAME",
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
    option("--merge-all", help="refused in this version: parts would empty each other's rows"),
    option("--no-merge", help="other queues have a table of this name, too: take this one's"),
    _ON_ERROR,
    option(
        "--max-parallel-copy",
        help="merged tables: copies into one destination at a time (stored, no effect yet)",
        metavar="N",
        kind=int,
    ),
    _SKIP_NON_EXISTING,
    option(
        "--skip-unusable",
        help="pass over tables that cannot be added (no key, unlogged, ...) and add the others; "
        "without it, one of them keeps all from being added",
    ),
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
        "make it a node that others can read from (refused in this version)",
        "nodes:create_branch",
        _NODES,
        "[NODE [CONNSTR]]",
        most=2,
        details="Refused in this version: the worker does not publish events on a branch yet, so "
        "nodes below it would get nothing and the root's queue would never be rotated. For a node "
        "that is a branch already, the command brings its SQL up to date. A branch that Londiste's "
        "own worker runs can be the provider of a leaf.",
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
                "only brings the SQL of a branch that exists up to date",
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
            option("--merge", help="refused in this version: see the manual", metavar="QUEUE"),
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
        "change-location",
        "tell all nodes that a node is reached by another connect string",
        "nodes:change_location",
        _NODES,
        "NODE CONNSTR",
        least=2,
        most=2,
        details="For a node that has moved to another host or port. The new connect string must "
        "lead to that node. The root tells all nodes through the queue; those that can be reached "
        "are told at once, and the others are named: where one of them reads from the node that "
        'has moved, run the same command there. Change "db" in the INI of the moved node '
        "yourself.",
        options=(option("--nocheck", help="do not check that CONNSTR leads to NODE"),),
        examples=(
            ("dst.ini change-location src 'host=db9 dbname=shop'", "the root lives on db9 now"),
        ),
        side="admin",
    ),
    Command(
        "rejoin",
        "bring a node back whose position is lost, after a restore from a backup",
        "proof:rejoin",
        _NODES,
        details='For a leaf whose worker says "Lost position": this database or the provider '
        "was restored from a backup, or the root is a standby now that was behind. Without "
        "--apply it only says what it found and what it would do, with numbers of rows.\n\n"
        "Where the provider still has the tick that this node has applied, its consumer is put "
        "there, and nothing else is needed. Else the node goes on at a new tick and every table "
        "is compared and repaired: rows that differ are written, and rows that only this node has "
        "are removed; vedur.repair_log keeps them. Until a table is equal its state is None, so "
        "wait-sync waits for it. Tables without a key are copied by the worker, which must be "
        "running. If the command is ended in the middle, run it again.",
        options=(
            option("--apply", help="do it"),
            option("--copy", help="copy all tables anew instead of repairing them"),
            option("--force", help="compare and repair although the position fits"),
            option(
                "--limit",
                help="name at most this many rows of a table (default 10)",
                metavar="N",
                kind=int,
            ),
            option(
                "--max-wait",
                help="give up if the worker does not come to a tick within this time (default 120)",
                metavar="SECONDS",
                kind=float,
            ),
            _JSON,
        ),
        examples=(
            ("dst.ini rejoin", "what is wrong, and what would be done"),
            ("dst.ini rejoin --apply", "do it"),
        ),
        side="repair",
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
        "with * and ?; names may be quoted as in SQL, inside the shell's quotes: "
        "'\"Weird Schema\".\"Order\"' is the same as 'Weird Schema.Order'.\n\n"
        "A table needs a primary key, or a unique index over NOT NULL columns that is neither "
        "partial nor deferrable nor of an expression; the one of REPLICA IDENTITY USING INDEX "
        "comes first. With --all or a glob all tables are looked at before the first is added, and "
        "every one that cannot be added is named with its reason.\n\n"
        "Two tables may bring rows to one local table (--dest-table) only if each has a condition "
        "(--where) that tells its rows from the other's, and the second is added with "
        "--skip-truncate or --expect-sync.",
        options=_ADD_TABLE,
        examples=(
            ("src.ini add-table shop.orders shop.items", "offer two tables"),
            ("dst.ini add-table 'shop.*' --create-full --wait-sync", "take all of a schema"),
            (
                "dst.ini add-table shop.orders --dest-table=eu.orders --where=\"region='eu'\"",
                "some rows, under another name",
            ),
            (
                "dst.ini add-table shop.users --columns=id,name,mail=contact --create",
                "some columns, one of them renamed",
            ),
        ),
        side="admin",
    ),
    Command(
        "change-filter",
        "change which rows of a table the node has",
        "tables:change_filter",
        _TABLES,
        "TABLE",
        least=1,
        most=1,
        details="Rows for which the new condition does not hold go, those for which it holds and "
        "the old one did not come from the provider: no new copy, exact while changes go on. Rows "
        "and condition change in one transaction; the worker waits meanwhile.\n\n"
        "Column names in the condition are those of the table here.",
        options=(
            option(
                "--where",
                "--copy-condition",
                help="the new condition",
                metavar="CONDITION",
                dest="where",
            ),
            option("--all-rows", "--no-where", help="no condition: all rows", dest="all_rows"),
            option("--dry-run", help="count the rows that would come and go, change nothing"),
            option(
                "--force",
                help="begin although the node is far behind; accept a condition that depends on "
                "time or settings",
            ),
            _MAX_WAIT,
            _JSON,
        ),
        examples=(
            ("dst.ini change-filter shop.orders --where=\"region in ('eu', 'uk')\"", "more rows"),
            ("dst.ini change-filter shop.orders --all-rows --dry-run", "what would come"),
        ),
        side="repair",
    ),
    Command(
        "change-table",
        "say what becomes of events of a table that the node refuses",
        "poison:change_table",
        _TABLES,
        "TABLE...",
        least=1,
        most=None,
        details="stop: replay waits until the table is mended, nothing is lost. quarantine-row: "
        "the event and later ones of its row wait in quarantine, the rest goes on. "
        "quarantine-table: the whole table waits. default: what INI says (on_error).",
        options=(_ON_ERROR,),
        examples=(
            ("dst.ini change-table shop.orders --on-error=quarantine-row", "do not stop for one"),
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
        "errors",
        "show what stops the node, and the next command to type",
        "poison:errors",
        _INFO,
        details="The event that is refused, with its table, key, tick and SQL error; first copies "
        "that do not get on; what is in quarantine. The exit code is 1 if there is anything.",
        options=(_JSON,),
        examples=(("dst.ini errors", "prints nothing when all is well"),),
    ),
    Command(
        "skip",
        "leave out an event, or all events of a tick, that is in the way",
        "poison:skip",
        _PROOF,
        details="The worker does it in the transaction of its batch. What it leaves out is kept in "
        "quarantine, and later events of the same row join it there: mend the table and run "
        "quarantine replay, or give it up with quarantine drop.",
        options=(
            option("--event", help="number of the event, see errors", metavar="N", kind=int),
            option("--tick", help="all events of the batch of this tick", metavar="N", kind=int),
            option("--reason", help="why; kept with the events", metavar="TEXT"),
            option("--force", help="also what is not in the way yet, when it comes"),
        ),
        examples=(
            ("dst.ini skip --event=4711 --reason='row of a test, ticket 12'", "go on without it"),
        ),
        side="admin",
    ),
    Command(
        "quarantine",
        "list, show, replay or drop events that were put aside",
        "poison:quarantine",
        _PROOF,
        "list|show|replay|drop [ID...]",
        least=1,
        most=None,
        details="replay applies them in their order and takes them out of the quarantine in the "
        "same transaction; what is refused again stays. ID means all events of that event's row. "
        "With --until-tick later events stay too, and go on holding their rows. "
        "The exit code of replay is 1 if something stayed.\n\n"
        "drop gives events up; it asks for --reason and --yes, and they stay in "
        "vedur.quarantine_log.",
        options=(
            option("--table", help="only this table (repeatable)", metavar="NAME", repeat=True),
            option("--until-tick", help="only up to this tick", metavar="N", kind=int),
            option("--replace", help="replay: overwrite rows that inserts find"),
            option("--reason", help="drop: why; kept with the events", metavar="TEXT"),
            option("--yes", help="drop: really"),
            _JSON,
        ),
        examples=(
            ("dst.ini quarantine list", "what was put aside"),
            ("dst.ini quarantine replay --table=shop.orders", "the table is mended"),
            ("dst.ini quarantine drop 17 --reason='broken at the source' --yes", "give one up"),
        ),
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
        details="Each script is one transaction; begin and commit inside are ignored. "
        "Statements that cannot run inside a transaction (such as VACUUM) are refused. Every node "
        "runs it at the same place in the stream of changes. A script is known by its file name "
        "and runs once.\n\n"
        "Comment lines before the first statement say where it runs: --*-- Local-Table: a, b "
        "means nodes that have these tables, and @a@ in the text is the node's name of it. Other "
        "keys: Local-Sequence, Local-Destination (the set's name of a table that is local and "
        "exists here), Need-Table, Need-Sequence, Need-Function (name, or name(number of "
        "arguments)), Need-Schema, Need-View. Where a node has a table under another name, the "
        "names in the statements are replaced by the node's. Names of indexes and types, and names "
        "inside functions, are not; a name without a schema counts as one in public.\n\n"
        "With --dry-run nothing runs: every node is asked, and what it would run is printed, with "
        "a warning for each schema or relation that the node lacks. The exit code is the number "
        "of nodes that could not run it, or could not be asked.",
        options=(
            option("--dry-run", help="show what each node would run"),
            option("--json", help="with --dry-run: print JSON instead of a script"),
        ),
        examples=(
            ("src.ini execute add_column.sql", "DDL for the whole set"),
            ("src.ini execute --dry-run add_column.sql", "what each node would run"),
        ),
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
        "all local tables. A table that cannot be compared is named with the reason, and the "
        "others are compared. Exit code 0: all tables were compared whole and are equal; 1 to 99: "
        "so many tables differ (99: or more); 100: none is known to differ, but not all are proven "
        "equal (a table is missing or not in sync, a column exists on one side only or has a type "
        "here that rounds its values, there is no table); 107: the same, because the node is too "
        "far behind; 101 and more: the command failed, 100 and the code of the error, and --json "
        "prints nothing.",
        options=(
            option("--force", help="begin although the node is far behind"),
            option("--count-only", help="count rows, do not hash them; not with --rows"),
            option(
                "--common-columns",
                help="columns that exist on one side only do not count (they are named)",
            ),
            option(
                "--allow-rounding",
                help="values that a type here has rounded do not count (their columns are named)",
            ),
            option("--rows", help="name the rows that differ"),
            option(
                "--limit",
                help="name at most this many (default 100); implies --rows",
                metavar="N",
                kind=int,
            ),
            _MAX_WAIT,
            _JSON,
        ),
        examples=(
            ("dst.ini compare", "all tables"),
            ("dst.ini compare shop.orders --limit=20", "one, and which rows differ"),
        ),
        side="repair",
        errors_from=100,
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
            option(
                "--limit", help="name at most this many rows (default 10)", metavar="N", kind=int
            ),
            _MAX_WAIT,
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
        "key. Also policies that hide rows from the role, and rules and BEFORE triggers here that "
        "act on replicated changes. The exit code is the number of tables with a finding (99: or "
        "more); where the command fails, 100 and the code of the error.",
        options=(_JSON,),
        examples=(("dst.ini check", "prints nothing when all is well"),),
        errors_from=100,
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
    Command(
        "web",
        "serve the status page",
        "web:web",
        _RUN,
        details="Shows the whole set, as INI's node sees it: topology, lag and its history, "
        "tables, copies, batches, errors, the queue. It only reads. The same as JSON (index.json, "
        "nodes/NAME.json), for Prometheus (/metrics) and for monitors (/healthz, /readyz). It asks "
        "nobody for a password: on another address than the loopback put a proxy before it. A "
        "worker serves the page by itself where INI sets web_port.",
        options=(
            option("--host", help="address to listen on (default: web_host)", metavar="ADDRESS"),
            option(
                "--port",
                help="port to listen on (default: web_port, or 8060)",
                metavar="PORT",
                kind=int,
            ),
        ),
        examples=(
            ("src.ini web", "then open http://127.0.0.1:8060/"),
            ("src.ini web --port=8061", "a second set on the same machine"),
        ),
    ),
    Command(
        "doctor",
        "check everything that replication needs, with remedies",
        "doctor:doctor",
        _RUN,
        details="Looks at INI, connections, versions, rights, clocks, the ticker, the worker, "
        "triggers, keys, lag, Java and Spark, and changes nothing. One line each: ok, warn or "
        "fail, and below the last two what to do. The exit code is 1 if anything fails.",
        options=(_JSON,),
        examples=(
            ("dst.ini doctor", "before the first start, and when something is odd"),
            ("dst.ini doctor --json", "for programs"),
        ),
    ),
)
