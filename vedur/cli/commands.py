"""All commands as data: words, options, examples. What they do is in the modules they name."""

from __future__ import annotations

from vedur.cli.grammar import Command, Option, option, seconds

_NODES = "Nodes"
_TABLES = "Tables and sequences"
_INFO = "Information"
_PROOF = "Scripts and proof"
_RUN = "Running"

_JSON = option("--json", help="print JSON")
_ALL = option("--all", help="all that are available")
_NODE = option("--node", help="the node to act on (default: the local one)", metavar="NODE")
_CONSUMER = option("--consumer", help="the consumer (default: the worker)", metavar="NAME")
_DEAD = option(
    "--dead",
    help="a node that is gone: it is not waited for (repeatable)",
    metavar="NODE",
    repeat=True,
)
_MOVE_WAIT = option(
    "--max-wait",
    help="give up if the new provider is behind and does not come up within this time, or if the "
    "worker does not answer (default 60)",
    metavar="SECONDS",
    kind=seconds,
)
_MAX_LAG = option(
    "--max-lag",
    help="give up if the new root is further behind than this (default 10)",
    metavar="SECONDS",
    kind=seconds,
)
_NOCHECK = option("--nocheck", help="do not check that CONNSTR leads to the database of INI")
_PROVIDER = option(
    "--provider",
    help="how to reach the node to read from (or initial_provider_location in INI)",
    metavar="CONNSTR",
)
_MAX_WAIT = option(
    "--max-wait",
    help="give up if the node is behind and does not catch up within this time (default 60)",
    metavar="SECONDS",
    kind=seconds,
)
_ON_ERROR = option(
    "--on-error",
    help="what to do with events that this node refuses: stop, quarantine-row or quarantine-table "
    "(default: on_error in INI)",
    metavar="POLICY",
)
_SKIP_NON_EXISTING = option("--skip-non-existing", help="ignore names that do not exist")

_COPY_NODE: tuple[Option, ...] = (
    option(
        "--copy-node",
        help="copy from this node instead of the provider; it must be the root or a branch, not "
        "below this node, and have the table whole and in sync",
        metavar="NODE",
    ),
    option(
        "--find-copy-node",
        help="copy from the nearest node above, beginning with the provider, that has the table "
        "whole and in sync",
    ),
)
_HANDLER = (
    option("--handler", help="table handler, see show-handlers", metavar="NAME"),
    option(
        "--handler-arg",
        help="argument of it (repeatable)",
        metavar="KEY=VALUE",
        dest="handler_args",
        repeat=True,
    ),
    option(
        "--transform",
        help="a function of yours that changes rows, see write-a-handler in the manual",
        metavar="MODULE:FUNCTION",
    ),
)
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
    *_COPY_NODE,
    option("--no-triggers", help="make no triggers"),
    option(
        "--trigger-flags",
        help="when the trigger fires and how it writes: B before, A after, I U D operations, "
        "L urlencoded, Q SQL, J JSON, S skip",
        metavar="BAIUDLQJS",
    ),
    option(
        "--trigger-arg",
        help="argument of the trigger (repeatable); when=EXPR says which changes become events: a "
        "row that an update takes out of it stays on other nodes as it was (--where is a filter "
        "of rows)",
        metavar="ARG",
        dest="trigger_args",
        repeat=True,
    ),
    *_HANDLER,
    option(
        "--merge-all",
        help="leaf of several queues: take the tables of this name from all of them into one",
    ),
    option(
        "--no-merge",
        help="use only this queue's table, although other queues have one of this name",
    ),
    option(
        "--part-column",
        help="merged tables: the column here, which the root does not have, that tells the rows of "
        "this part; every row comes with VALUE in it (default: the name of the queue)",
        metavar="NAME[=VALUE]",
    ),
    _ON_ERROR,
    option(
        "--max-parallel-copy",
        help="merged tables: parts that are loaded into one table at a time",
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
        "make it a node that others can read from",
        "nodes:create_branch",
        _NODES,
        "[NODE [CONNSTR]]",
        most=2,
        details="A branch reads from the root or from another branch, as a leaf does, and has a "
        "copy of the queue, from which further nodes read: every event and every tick, whatever "
        "becomes of the event on this node. Its server needs a ticker (pgqd), which rotates that "
        "queue. For a node that is a branch already, the command brings its SQL up to date.",
        options=(
            _PROVIDER,
            option(
                "--sync-watermark",
                help="the queue below this node keeps what these nodes need, not what the whole "
                "set needs; the nodes ask each other for their positions",
                metavar="NODE,...",
            ),
            _NOCHECK,
        ),
        examples=(
            (
                "mid.ini create-branch mid 'host=db2 dbname=x' --provider='host=db1 dbname=x'",
                "a branch below the root on db1",
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
            option(
                "--merge",
                help="a part: its changes go on into this combined queue, of which the same "
                "database is root or branch",
                metavar="QUEUE",
            ),
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
        "named in a warning. A node that others read from is not dropped, unless --reparent moves "
        "them first: all of them are looked at before the first one is moved (change-provider), "
        "and nothing is copied again. A table of theirs that is being copied while the node does "
        "not answer is copied anew, from the provider.\n\n"
        "Consumers beside the workers have positions, too. --reparent moves those that keep them "
        "on other nodes. Where another one reads from the node or keeps its position there, "
        "nothing is changed: it is named with its tick and the way to lead it elsewhere, or "
        "--forget-consumers gives its position up.",
        options=(
            option("--reparent", help="let the nodes below it read from its provider"),
            option("--forget-consumers", help="also if consumers lose their positions with it"),
            _MOVE_WAIT,
        ),
        examples=(
            ("src.ini drop-node dst", "the set goes on without dst"),
            ("src.ini drop-node mid --reparent", "nodes below mid read from its provider"),
        ),
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
        details="Everything is looked at first: that both nodes answer, that the new provider is "
        "not below this node, that it has the tick that is applied here or will have it soon, and "
        "that no table is being copied; where the old provider does not answer, copies begin anew "
        "at the new one. Then the worker is paused, subscribed at the new provider, "
        "switched and resumed, and its old subscription ends. An error, an interrupt or a worker "
        "that does not answer (--max-wait) changes nothing and leaves no worker paused. "
        'After a kill "status" shows move_provider among the attributes of the node: '
        "run the same command again, it finishes what was begun, or name another provider if that "
        'one is gone; "resume" gives the move up.\n\n'
        "A node that has applied ticks which the new provider never had is refused, though that "
        'has ticks of the same numbers: "rejoin --provider" makes its tables equal there.\n\n'
        "--consumer moves a consumer beside the worker that keeps its position on the node. A "
        "provider that is gone is named with --dead, or tagged as dead before (tag-dead).",
        options=(
            option("--provider", help="name of the node to read from", metavar="NODE"),
            _NODE,
            _CONSUMER,
            _DEAD,
            _MOVE_WAIT,
        ),
        examples=(
            ("dst.ini change-provider --provider=mid", "dst now reads from mid"),
            (
                "dst.ini change-provider --provider=src --dead=mid",
                "mid is gone: read from the root",
            ),
        ),
        side="admin",
    ),
    Command(
        "takeover",
        "make this node the root, or let it take the place of a branch",
        "nodes:takeover",
        _NODES,
        "OLD",
        least=1,
        most=1,
        details="OLD is the root, or a branch. Everything is checked first; nothing is changed "
        "while there is a reason against it. Then the new root catches up, writers of the old one "
        "are refused for a short time (the error names the new root), transactions that began "
        "before are waited for, the last tick is written and applied, and the new root opens, with "
        "an epoch of its own. The old root is a branch of the new one from then on, and the way "
        "back is the same command. Last, with writers at work again, its tables are compared with "
        "those of the new root. Exit code 8: the takeover is done, and tables of the old root "
        "differ; 9: it is done, and they are not proven equal; 10: the new root is open, and nodes "
        "are left that do not read from it, each with a line that says why.\n\n"
        "An error, an interrupt or --timeout opens the old root again. If the command is killed, "
        "run it again to finish it, or with --abort to undo it: possible until the new root is "
        "open. So is a failover that has promoted nobody, where the root is back. Where the new "
        "root is lost for good, --abort --dead=NODE keeps the old one, under a new epoch; it also "
        "opens a root that was replaced by one that is lost now.\n\n"
        "--dead-root replaces a root that is gone. The node with the newest tick is found, the new "
        "root catches up from it first, and the nodes that read from the old root read from the "
        "new one. A node that answers is not dead, and the command refuses then; so it does where "
        "the server answers and turns it away, unless OLD is named with --dead, too.",
        options=(
            option(
                "--node",
                "--target",
                help="the node that takes over (default: the local one)",
                metavar="NODE",
            ),
            option(
                "--all",
                help="all other nodes that read from OLD read from the new node (with --dead-root "
                "they do in any case)",
            ),
            _DEAD,
            option("--dead-root", help="OLD is the root and is gone"),
            option("--dead-branch", help="OLD is a branch and is gone"),
            option("--dry-run", help="check, print the steps, change nothing"),
            option("--abort", help="undo a takeover that was begun; the old root opens again"),
            option("--no-compare", help="do not compare the old root with the new one afterwards"),
            _MAX_LAG,
            option(
                "--timeout",
                help="open the old root again if the new one is not open within this time "
                "(default 30)",
                metavar="SECONDS",
                kind=seconds,
            ),
        ),
        examples=(
            ("new.ini takeover old", "the node of new.ini becomes the root"),
            ("new.ini takeover old --dry-run", "what would be done"),
            ("new.ini takeover old --dead-root", "the server of old has burnt down"),
        ),
        side="admin",
    ),
    Command(
        "switchover",
        "say whether this node could become the root now",
        "nodes:switchover",
        _NODES,
        details="Looks at everything that takeover looks at, prints yes, or no with every reason, "
        "and changes nothing; a tick is written to see that the worker follows. The exit code is 0 "
        "for yes.",
        options=(
            option("--check", help="ask; nothing else can be done with this command"),
            option(
                "--node",
                "--target",
                help="the node that would take over (default: the local one)",
                metavar="NODE",
            ),
            _DEAD,
            _MAX_LAG,
            _JSON,
        ),
        examples=(("new.ini switchover --check", "could the node of new.ini take over?"),),
    ),
    Command(
        "tag-dead",
        "tell every node that nodes are gone, so that nobody connects to them",
        "nodes:tag_dead",
        _NODES,
        "NODE...",
        least=1,
        most=None,
        details="Commands and the status page no longer wait for these nodes. Nothing else "
        "changes: the queue of their provider keeps events for them until they are dropped, or "
        "come back (tag-alive).",
        examples=(("src.ini tag-dead dst", "dst has broken down and may come back"),),
        side="admin",
    ),
    Command(
        "tag-alive",
        "tell every node that nodes are back",
        "nodes:tag_alive",
        _NODES,
        "NODE...",
        least=1,
        most=None,
        examples=(("src.ini tag-alive dst", "dst is back"),),
        side="admin",
    ),
    Command(
        "rename-node",
        "give a node another name, on all nodes",
        "nodes:rename_node",
        _NODES,
        "OLD NEW",
        least=2,
        most=2,
        details="Workers go on meanwhile. All nodes must answer. The node, its provider and the "
        "nodes below it need the SQL of this version of Vedur. If the command is ended in the "
        "middle, run it again. Change node_name in the INI of the node yourself.",
        examples=(("src.ini rename-node dst berlin", "dst is called berlin from now on"),),
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
        "lead to that node. Nodes that can be reached get it at once, all nodes get it through the "
        "queue, and nodes that cannot be reached are named: if one of them reads from the node "
        'that has moved, run the same command there. Change "db" in the INI of the moved node '
        "yourself.",
        options=(option("--nocheck", help="do not check that CONNSTR leads to NODE"),),
        examples=(
            ("dst.ini change-location src 'host=db9 dbname=shop'", "the root is on db9 now"),
        ),
        side="admin",
    ),
    Command(
        "rejoin",
        "bring a node back whose position is lost, after a restore from a backup",
        "compare:rejoin",
        _NODES,
        details='For a leaf whose worker reports "Lost position": this database or the '
        "provider was restored from a backup, or the root is now a standby that was behind. "
        "Without --apply it only shows what is wrong and what it would do, with numbers of "
        "rows.\n\n"
        "If the provider still has the tick that this node has applied, the consumer is moved "
        "there, and nothing else is needed. Otherwise the node continues at a new tick, and "
        "every table is compared and repaired: rows that differ are written, and rows that "
        "only this node has are removed; vedur.repair_log keeps them. Until a table is equal "
        "its state is None, so wait-sync waits for it. Tables without a key are copied by the "
        "worker, which must be running. If the command is ended in the middle, run it again.\n\n"
        "With --provider a leaf reads from another node from then on: its own is gone, or is of "
        "the history that is lost, and change-provider refuses because ticks do not fit.",
        options=(
            option("--apply", help="do it"),
            option("--copy", help="copy all tables again instead of repairing them"),
            option("--force", help="compare and repair although the position fits"),
            option("--provider", help="read from this node from now on", metavar="NODE"),
            option(
                "--limit",
                help="name at most this many rows of a table (default 10)",
                metavar="N",
                kind=int,
            ),
            option(
                "--max-wait",
                help="give up if the worker does not reach a tick within this time (default 120)",
                metavar="SECONDS",
                kind=seconds,
            ),
            _JSON,
        ),
        examples=(
            ("dst.ini rejoin", "what is wrong, and what would be done"),
            ("dst.ini rejoin --apply", "repair it"),
        ),
        side="repair",
    ),
    Command(
        "resurrect",
        "bring a root back that another one has replaced while it was away",
        "resurrect:resurrect",
        _NODES,
        details="Run it with the ini of the old root, after takeover --dead-root, when its server "
        "is back. The node becomes a branch of the new root. What was written here and reached no "
        "other node is kept in vedur.lost_event and listed by lost-events. Every table is compared "
        "with the new root and repaired, so nothing is copied anew; vedur.repair_log keeps what is "
        "changed or removed. The worker of this node must be running for the repair.\n\n"
        "A branch that has followed the old root further than the new one is brought back the "
        "same way. If the command is ended in the middle, run it again.",
        options=(
            option("--dry-run", help="only say what would be done, and how many events are lost"),
            option("--keep-rows", help="leave rows of lost events in the tables, as Londiste does"),
            option("--copy", help="copy all tables again instead of repairing them"),
            option(
                "--limit",
                help="name at most this many rows of a table (default 10)",
                metavar="N",
                kind=int,
            ),
            option(
                "--timeout",
                help="give up if transactions that may still write do not end within this time "
                "(default 60)",
                metavar="SECONDS",
                kind=seconds,
            ),
            option(
                "--max-wait",
                help="give up if the worker does not reach a tick within this time (default 120)",
                metavar="SECONDS",
                kind=seconds,
            ),
            _JSON,
        ),
        examples=(
            ("old.ini resurrect --dry-run", "says what only this node has"),
            ("old.ini resurrect", "keeps it, and makes this node a branch of the new root"),
        ),
        side="admin",
    ),
    Command(
        "lost-events",
        "list or export what only a root had that was replaced",
        "resurrect:lost_events",
        _INFO,
        details="They were kept by resurrect, in vedur.lost_event of this database. SQL is for "
        "people: read it, change it, and run what is still wanted on the new root. The exit code "
        "is 1 if there are any.",
        options=(
            option("--format", help="text (default), json or sql", metavar="FORMAT"),
            option("--forget", help="delete them after they were printed; needs --yes"),
            option("--yes", help="really delete"),
        ),
        examples=(
            ("old.ini lost-events", "one line for each event"),
            ("old.ini lost-events --format=sql", "statements that do the same again"),
        ),
    ),
    Command(
        "wait-root",
        "wait until the node has what the root has now",
        "wait:wait_root",
        _NODES,
        examples=(("dst.ini wait-root", "then everything committed before is here"),),
    ),
    Command(
        "wait-provider",
        "wait until the node has what its provider has now",
        "wait:wait_provider",
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
        details="First on the root, then on the nodes that should have them; there the worker "
        "makes a first copy. TABLE is schema.name (default schema: public) or a glob with * "
        "and ?; names may be quoted as in SQL, inside the shell's quotes: '\"Weird "
        "Schema\".\"Order\"' is the same as 'Weird Schema.Order'.\n\n"
        "A table needs a primary key, or a unique index over NOT NULL columns that is not "
        "partial, not deferrable and not over an expression; the index of REPLICA IDENTITY "
        "USING INDEX is preferred. With --all or a glob all tables are checked before the "
        "first is added, and every table that cannot be added is named with its reason.\n\n"
        "Two tables may bring rows to one local table (--dest-table) only if each has a "
        "condition (--where) that separates its rows from the other's, and the second is added "
        "with --skip-truncate or --expect-sync. A column of this node alone may tell them instead "
        "(--part-column), also where both have the same keys.\n\n"
        "The first copy reads from the provider. A provider that lacks the table, or has some of "
        "its rows or columns, cannot be copied from; then another node can be (--find-copy-node, "
        "--copy-node). Changes come from the provider in any case.",
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
            (
                "dst.ini add-table shop.orders --find-copy-node",
                "below a branch that does not have the table, or has a part of it",
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
        details="Rows that do not match the new condition are deleted; rows that match it and "
        "did not match the old one are copied from the provider. There is no new copy, and the "
        "result is exact while changes go on. Rows and condition change in one transaction; "
        "the worker waits meanwhile.\n\n"
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
            option(
                "--dry-run",
                help="count the rows that would be inserted and deleted, change nothing",
            ),
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
            ("dst.ini change-filter shop.orders --all-rows --dry-run", "what would be inserted"),
        ),
        side="repair",
    ),
    Command(
        "change-handler",
        "give a table of the node another handler",
        "tables:change_handler",
        _TABLES,
        "TABLE",
        least=1,
        most=1,
        details="Where the new handler asks for the same rows, only the handler changes. Where "
        "both tell by conditions which rows they ask for, as those of shards do, the rows that "
        "differ come and go, as in change-filter. Where it asks for others in another way, the "
        "table is copied anew, which --resync allows.",
        options=(
            *_HANDLER,
            option("--resync", help="copy the table anew where the handler asks for other rows"),
            option("--dry-run", help="say what would become of the rows, change nothing"),
            _MAX_WAIT,
        ),
        examples=(
            ("dst.ini change-handler shop.log --handler=bulk", "as the default"),
            (
                "dst.ini change-handler shop.users --handler=obfuscate --resync",
                "mask it from now on",
            ),
            (
                "dst.ini change-handler shop.users --handler=londiste",
                "all rows, where it was a shard",
            ),
        ),
        side="admin",
    ),
    Command(
        "change-table",
        "set what happens to events of a table that the node refuses",
        "quarantine:change_table",
        _TABLES,
        "TABLE...",
        least=1,
        most=None,
        details="stop: replay waits until the table is fixed, nothing is lost. quarantine-row: "
        "the event and later ones of its row wait in quarantine, the rest goes on. "
        "quarantine-table: the whole table waits. default: the policy of INI (on_error).",
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
        details="The rows are deleted (not with --skip-truncate of add-table) and copied from the "
        "provider, or from the node that --copy-node or --find-copy-node names. That choice is "
        "kept with the table, also the one of add-table, and holds until another is made.",
        options=(_ALL, *_COPY_NODE),
        examples=(
            ("dst.ini resync shop.orders", "delete the rows and copy them again"),
            ("dst.ini resync shop.orders --copy-node=root", "copy them from another node"),
        ),
        side="admin",
    ),
    Command(
        "wait-sync",
        "wait until the first copy of all tables is done",
        "wait:wait_sync",
        _TABLES,
        examples=(("dst.ini wait-sync", "returns when every table is ok"),),
    ),
    Command(
        "status",
        "show the tree of nodes with lag, ticks and errors",
        "show:status",
        _INFO,
        details="Tables: in sync / being copied / in the set but not on the node. An error that "
        "stops a worker is shown on a line of its own. With several INIs --json prints a list. A "
        "queue that cannot be asked does not keep the others back, and gives the exit code.",
        options=(
            option("--dead", help="do not ask this node (repeatable)", metavar="NODE", repeat=True),
            option("--compact", help="one line per node"),
            _JSON,
        ),
        examples=(
            ("src.ini status", "the whole set"),
            ("src.ini status --json", "for programs"),
            ("a.ini b.ini status", "two queues, one after the other; a directory does, too"),
        ),
        run_many="show:status_of_all",
    ),
    Command(
        "errors",
        "show what stops the node, and the next command to type",
        "quarantine:errors",
        _INFO,
        details="The event that is refused, with its table, key, tick and SQL error; first copies "
        "that are stuck; what is in quarantine. The exit code is 1 if there is anything.",
        options=(_JSON,),
        examples=(("dst.ini errors", "prints nothing when all is well"),),
    ),
    Command(
        "skip",
        "quarantine an event, or all events of a tick, that blocks the node",
        "quarantine:skip",
        _PROOF,
        details="The worker does it in the transaction of its batch. The events are kept in "
        "quarantine, and later events of the same row join them there: fix the table and run "
        "quarantine replay, or discard them with quarantine drop.",
        options=(
            option("--event", help="number of the event, see errors", metavar="N", kind=int),
            option("--tick", help="all events of the batch of this tick", metavar="N", kind=int),
            option("--reason", help="why; kept with the events", metavar="TEXT"),
            option("--force", help="also an event that does not block the node yet, when it comes"),
        ),
        examples=(
            ("dst.ini skip --event=4711 --reason='row of a test, ticket 12'", "go on without it"),
        ),
        side="admin",
    ),
    Command(
        "quarantine",
        "list, show, replay or drop events in quarantine",
        "quarantine:quarantine",
        _PROOF,
        "list|show|replay|drop [ID...]",
        least=1,
        most=None,
        details="replay applies them in their order and takes them out of the quarantine in the "
        "same transaction; what is refused again stays. ID means all events of that event's row. "
        "With --until-tick later events stay too, and still hold their rows. "
        "The exit code of replay is 1 if something stayed.\n\n"
        "drop discards events; it needs --reason and --yes, and the events are kept in "
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
            ("dst.ini quarantine list", "what is in quarantine"),
            ("dst.ini quarantine replay --table=shop.orders", "after the table is fixed"),
            ("dst.ini quarantine drop 17 --reason='broken at the source' --yes", "discard one"),
        ),
    ),
    Command(
        "members",
        "list the nodes and how they are reached",
        "show:members",
        _INFO,
        options=(_JSON,),
        examples=(("src.ini members", "passwords are masked"),),
    ),
    Command(
        "node-info",
        "show the local node: type, health, connect strings",
        "show:node_info",
        _INFO,
        options=(_JSON,),
        examples=(("dst.ini node-info", "what INI describes"),),
    ),
    Command(
        "node-status",
        "show the local node between provider and subscribers",
        "show:node_status",
        _INFO,
        options=(_JSON,),
        examples=(("dst.ini node-status", "a part of status"),),
    ),
    Command(
        "tables",
        "list the replicated tables and their states",
        "show:tables",
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
        "show:seqs",
        _INFO,
        options=(_JSON,),
        examples=(("dst.ini seqs", "last_value is what the root has published"),),
    ),
    Command(
        "missing",
        "list tables and sequences that are not replicated",
        "show:missing",
        _INFO,
        options=(_JSON,),
        examples=(("dst.ini missing", "on a node: what the set has and the node does not"),),
    ),
    Command(
        "show-handlers",
        "list table handlers, or describe some",
        "show:show_handlers",
        _INFO,
        "[HANDLER...]",
        most=None,
        examples=(("dst.ini show-handlers londiste", "its arguments"),),
    ),
    Command(
        "execute",
        "run SQL scripts on the root and, in order, on all nodes",
        "execute:execute",
        _PROOF,
        "FILE...",
        least=1,
        most=None,
        details="Each script is one transaction; begin and commit inside are ignored. "
        "Statements that cannot run inside a transaction (such as VACUUM) are refused. Every node "
        "runs it at the same place in the stream of changes: from before its first statement until "
        "its end nobody else writes to tables of the set that it names (or its header, for tables "
        "that only functions use). If those who write there do not end within lock_timeout, the "
        "command gives up and nothing has changed. Times without a zone mean UTC, and what a "
        "script sets (set ...) ends with it. A script is known by its file name "
        "and runs once. A table whose first copy on a node is not done there, and which the "
        "script may touch, is copied anew behind it.\n\n"
        "Comment lines before the first statement say where it runs: --*-- Local-Table: a, b "
        "means nodes that have these tables, and @a@ in the text is the node's name of it. Other "
        "keys: Local-Sequence, Local-Destination (the set's name of a table that is local and "
        "exists here), Need-Table, Need-Sequence, Need-Function (name, or name(number of "
        "arguments)), Need-Schema, Need-View. Where a node has a table under another name, the "
        "names in the statements are replaced by the node's. Names of indexes and types, and names "
        "inside functions, are not; a name without a schema counts as one in public.\n\n"
        "Where several sets are merged in one database, a script of one name and text runs there "
        "once, whichever set brings it first; with --*-- Per-Part: yes it runs once for each of "
        "them (nodes of Londiste do not know this key).\n\n"
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
        "compare:compare",
        _PROOF,
        "[TABLE...]",
        most=None,
        details="Counts and hashes both sides at the same moment of the stream. Without names: "
        "all local tables. A table that cannot be compared is named with the reason, and the "
        "others are compared. Exit code 0: all tables were compared whole and are equal; 1 to "
        "99: this many tables differ (99: or more); 100: none is known to differ, but not all "
        "are proven equal (a table is missing or not in sync, a column exists on one side only "
        "or has a type here that rounds its values, there is no table); 107: the same, because "
        "the node is too far behind; 101 and more: the command failed, 100 and the code of the "
        "error, and --json prints nothing.",
        options=(
            option(
                "--node",
                help="compare with this node instead of the provider; without it, a table that "
                "the provider lacks or has in part is compared with the nearest node above that "
                "has it whole",
                metavar="NODE",
            ),
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
        "compare:repair",
        _PROOF,
        "[TABLE...]",
        most=None,
        details="Shows what would be done; with --apply it is done, in one transaction per table. "
        "Running it again finds nothing. Without names: all local tables.",
        options=(
            option("--apply", help="write the rows"),
            option(
                "--node",
                help="take the rows of this node instead of the provider; without it, a table that "
                "the provider lacks or has in part is repaired from the nearest node above that "
                "has it whole",
                metavar="NODE",
            ),
            option("--force", help="begin although the node is far behind"),
            option(
                "--where",
                "--repair-where",
                help="repair only rows for which this SQL condition holds",
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
            ("dst.ini repair shop.orders --apply", "write the rows"),
        ),
        side="repair",
    ),
    Command(
        "check",
        "compare the structure of tables with the provider's",
        "compare:check",
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
        "compare:fkeys",
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
        details="With -d in the background: returns when the worker is ready. -s stops it after "
        "the current batch, -r makes it read INI again.\n\n"
        "Several INIs, or a directory of them, are served by one process with one Java: a queue "
        "that is slow or broken does not hold the others, and is tried again. [spark] and "
        "max_connections_per_node must be the same in all, pidfile and logfile must not. Anything "
        "wrong with one INI refuses the start of all. -r, -s and -k are for the queues of the INIs "
        "that they are given.\n\n"
        "--rewind, --reset and --set-tick move the position of the node and end; the worker must "
        "be stopped. They say how many events are passed over or applied again, and ask before "
        "they do it. Passed over means lost: repair or rejoin makes tables equal again. On a "
        "branch the position of the node itself is not moved, as its queue would have a hole.",
        options=(
            option("--rewind", help="let the provider send again from the tick applied here"),
            option("--reset", help="set the position of this node to that of its consumer"),
            option(
                "--set-tick",
                help="set both positions to this tick of the provider",
                metavar="TICK",
                kind=int,
            ),
            option("--yes", help="do not ask"),
        ),
        examples=(
            ("-d dst.ini worker", "start"),
            ("-r dst.ini", "INI has changed"),
            ("-s dst.ini", "stop"),
            ("-d a.ini b.ini c.ini worker", "three queues in one process"),
            ("-s b.ini", "stop one of them"),
            ("dst.ini worker --rewind", "the consumer on the provider is ahead of this node"),
        ),
        run_many="worker:workers",
    ),
    Command(
        "web",
        "serve the status page",
        "web:web",
        _RUN,
        details="Shows the whole set, as INI's node sees it: topology, lag and its history, "
        "tables, copies, batches, errors, the queue. It only reads. The same as JSON (index.json, "
        "nodes/NAME.json), for Prometheus (/metrics) and for monitors (/healthz, /readyz). It has "
        "no password: on another address than the loopback put a proxy in front of it. A worker "
        "serves the page itself where INI sets web_port.",
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
        details="Checks INI, connections, versions, rights, clocks, the ticker, the worker, "
        "triggers, keys, lag, Java and Spark, and changes nothing. One line each: ok, warn or "
        "fail, and below the last two what to do. The exit code is 1 if anything fails.",
        options=(_JSON,),
        examples=(
            ("dst.ini doctor", "before the first start, and when something looks wrong"),
            ("dst.ini doctor --json", "for programs"),
        ),
    ),
)
