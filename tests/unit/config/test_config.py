"""Ini files: sections, references, overrides, defaults, warnings and errors."""

from __future__ import annotations

import pickle
import socket
from pathlib import Path

import pytest

from vedur.config import (
    LondisteSettings,
    PgqdSettings,
    load_londiste,
    load_pgqd,
    reference_table,
    sample_ini,
)
from vedur.config.parameter import parameters
from vedur.errors import ConfigError

SEED_INI = """\
[londiste3]
job_name = src_digoal_01
db = host=172.16.3.176 port=1921 user=postgres dbname=digoal_01 password=postgres
queue_name = replika
logfile = /home/postgres/londiste3/log/src_digoal_01.log
pidfile = /home/postgres/londiste3/pid/src_digoal_01.pid
parallel_copies = 16
"""

#: What Londiste 3.0.2 prints; each line must appear in ours, in this order.
SEED_SAMPLE = """\
[londiste3]
## Parameters for Londiste ##
# target database
db = dbname=somedb host=127.0.0.1
# how many tables can be copied in parallel
#parallel_copies = 1
# accept only events for locally present tables
#local_only = true
## compare/repair
# max amount of time table can be locked
#lock_timeout = 10
# compare: sql to use
#compare_sql = select count(1) as cnt, sum(hashtext(t.*::text)) as chksum from only _TABLE_ t
#compare_fmt = %(cnt)d rows, checksum=%(chksum)s
## Parameters for pgq.CascadedWorker ##
# how often the root node should push wm downstream (seconds)
#global_wm_publish_period = 300
# how often the nodes should report their wm upstream (seconds)
#local_wm_publish_period = 300
## Parameters for pgq.Consumer ##
# queue name to read from
queue_name =
# override consumer name
#consumer_name = %(job_name)s
# whether to use cursor to fetch events (0 disables)
#pgq_lazy_fetch = 300
# whether to read from source size in autocommmit mode
# not compatible with pgq_lazy_fetch
# the actual user script on top of pgq.Consumer must also support it
#pgq_autocommit = 0
# whether to wait for specified number of events, before
# assigning a batch (0 disables)
#pgq_batch_collect_events = 0
# whether to wait specified amount of time,
# before assigning a batch (postgres interval)
#pgq_batch_collect_interval =
# whether to stay behind queue top (postgres interval)
#pgq_keep_lag =
## Parameters for skytools.DBScript ##
# default lifetime for database connections (in seconds)
#connection_lifetime = 1200
## Parameters for skytools.DBScript ##
# how many seconds to sleep between work loops
# if missing or 0, then instead sleeping, the script will exit
loop_delay = 1.0
# where to log
logfile = ~/log/%(job_name)s.log
# where to write pidfile
pidfile = ~/pid/%(job_name)s.pid
# per-process name to use in logging
#job_name = %(config_name)s
# whether centralized logging should be used
# search-path [ ./skylog.ini, ~/.skylog.ini, /etc/skylog.ini ]
#   0 - disabled
#   1 - enabled, unless non-daemon on console (os.isatty())
#   2 - always enabled
#use_skylog = 0
# how many seconds to sleep after catching a exception
#exception_sleep = 20
"""

#: As the C ticker prints it; our default granularity is finer.
SEED_PGQD_SAMPLE = """\
[pgqd]

# where to log
logfile = ~/log/pgqd.log

# pidfile
pidfile = ~/pid/pgqd.pid

## optional parameters ##

# libpq connect string without dbname=
#base_connstr =

# startup db to query other databases
#initial_database = template1

# limit ticker to specific databases
#database_list =

# log into syslog
#syslog = 1
#syslog_ident = pgqd

## optional timeouts ##

# how often to check for new databases
#check_period = 60

# how often to flush retry queue
#retry_period = 30

# how often to do maintentance
#maint_period = 120

# how often to run ticker
#ticker_period = 0.1
"""


@pytest.fixture
def ini(tmp_path: Path):
    """Write an ini file that only its owner may read and give its path."""

    def write(text: str, name: str = "job.ini", mode: int = 0o600) -> str:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    return write


def test_the_ini_of_the_seeds(ini) -> None:
    got = load_londiste(ini(SEED_INI))
    assert got.job_name == "src_digoal_01"
    assert got.consumer_name == "src_digoal_01"
    assert got.queue_name == "replika"
    assert got.parallel_copies == 16
    assert got.pidfile == "/home/postgres/londiste3/pid/src_digoal_01.pid"
    assert got.pidfile_for("admin") == got.pidfile + ".admin"
    assert got.warnings == ()


@pytest.mark.parametrize("section", ["londiste3", "londiste", "vedur"])
def test_the_three_sections_are_equal(ini, section: str) -> None:
    assert load_londiste(ini(f"[{section}]\ndb=dbname=a\nqueue_name=q\n")).db == "dbname=a"


def test_defaults_come_from_the_file_name(ini) -> None:
    got = load_londiste(ini("[londiste]\ndb=\tdbname=a\nqueue_name=q\n", "node_a.ini"))
    assert (got.job_name, got.consumer_name) == ("node_a", "node_a")
    assert (got.logfile, got.pidfile, got.pidfile_for("admin")) == ("", "", "")
    assert got.compare_fmt == "%(cnt)d rows, checksum=%(chksum)s"


def test_references(ini, monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/dba")
    text = (
        "[londiste]\nroot = /srv/%(job_name)s\njob_name = leaf_%(config_name)s\n"
        "db = dbname=a application_name=%(service_name)s-%(host_name)s\nqueue_name = q\n"
        "logfile = %(root)s/x.log\npidfile = ~/pid/%(job_name)s.pid\n"
        "node_name = 100%%\npublic_node_location = service=%(config_dir)s/map\n"
    )
    path = ini(text)
    got = load_londiste(path)
    assert got.logfile == "/srv/leaf_job/x.log"
    assert got.pidfile == "/home/dba/pid/leaf_job.pid"
    assert got.db == f"dbname=a application_name=londiste3-{socket.gethostname()}"
    assert got.node_name == "100%"
    assert got.public_node_location == f"service={Path(path).parent}/map"
    assert got.warnings == (), "a key used by a reference is not unknown"


def test_the_sample_lines_for_compare_can_be_used_as_they_are(ini) -> None:
    got = load_londiste(
        ini(
            "[londiste3]\ndb=dbname=a\nqueue_name=q\n"
            "compare_fmt = %(cnt)d rows, checksum=%(chksum)s\n"
            "compare_sql = select count(1) as cnt from only _TABLE_ t where name like 'a%'\n"
        )
    )
    assert got.compare_fmt % {"cnt": 3, "chksum": 7} == "3 rows, checksum=7"
    assert got.compare_sql.endswith("like 'a%'")


def test_a_lone_per_cent_sign_in_a_password_stays(ini) -> None:
    got = load_londiste(ini("[londiste]\ndb = dbname=a password=x%y\nqueue_name=q\n"))
    assert got.db == "dbname=a password=x%y"


def test_overrides_win_and_are_checked(ini) -> None:
    path = ini("[londiste]\ndb=dbname=a\nqueue_name=q\nloop_delay=1\n")
    got = load_londiste(path, {"loop_delay": "0", "pgq_consumer_id": "c"})
    assert (got.loop_delay, got.consumer_name) == (0.0, "c")
    with pytest.raises(ConfigError, match='bad value "soon" for "exception_sleep"'):
        load_londiste(path, {"exception_sleep": "soon"})


def test_old_names(ini) -> None:
    got = load_londiste(ini("[londiste3]\ndb=dbname=a\npgq_queue_name=q\npgq_consumer_id=c\n"))
    assert (got.queue_name, got.consumer_name, got.warnings) == ("q", "c", ())


def test_an_old_name_given_on_the_command_line_wins(ini) -> None:
    path = ini("[londiste3]\ndb=dbname=a\nqueue_name=q\n")
    assert load_londiste(path, {"pgq_queue_name": "other"}).queue_name == "other"


def test_spark_section_keeps_case(ini) -> None:
    got = load_londiste(
        ini(
            "[vedur]\ndb=dbname=a\nqueue_name=q\n[spark]\nspark.master = local[2]\n"
            "spark.sql.session.timeZone = UTC\nmaster = x\n"
        )
    )
    assert got.spark == {"spark.master": "local[2]", "spark.sql.session.timeZone": "UTC"}
    assert len(got.warnings) == 1
    assert '[spark] "master" is ignored' in got.warnings[0]


def test_unknown_key_names_the_nearest(ini) -> None:
    path = ini("[londiste]\ndb=dbname=a\nqueue_name=q\nparalel_copies = 4\nzzzz=1\n[other]\n")
    got = load_londiste(path)
    assert got.warnings == (
        f'{path}: unknown section "[other]" is ignored',
        f'{path}: [londiste] unknown key "paralel_copies" is ignored, '
        'did you mean "parallel_copies"?',
        f'{path}: [londiste] unknown key "zzzz" is ignored',
    )


def test_a_key_without_effect_says_why(ini) -> None:
    got = load_londiste(ini("[londiste]\ndb=dbname=a\nqueue_name=q\nsql_retry=1\n"))
    assert '"sql_retry" has no effect: lost connections are always retried' in got.warnings[0]


@pytest.mark.parametrize(
    ("mode", "warned"), [(0o600, False), (0o640, True), (0o604, True), (0o700, False)]
)
def test_password_readable_by_others(ini, mode: int, warned: bool) -> None:
    got = load_londiste(ini(SEED_INI, mode=mode))
    assert any("chmod 600" in line for line in got.warnings) is warned
    assert not any("=postgres" in line for line in got.warnings)


@pytest.mark.parametrize(
    ("mode", "warned"), [(0o622, True), (0o660, True), (0o602, True), (0o644, False)]
)
def test_a_file_that_others_may_write(ini, mode: int, warned: bool) -> None:
    got = load_londiste(ini("[vedur]\ndb=dbname=a\nqueue_name=q\n", mode=mode))
    assert any("chmod go-w" in line for line in got.warnings) is warned


def test_no_warning_without_a_password(ini) -> None:
    assert load_londiste(ini("[vedur]\ndb=dbname=a\nqueue_name=q\n", mode=0o644)).warnings == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pgqd]\n", r"has no section \[londiste3\] or \[londiste\] or \[vedur\]"),
        ("[londiste]\nqueue_name=q\n", r'"db" is missing in section \[londiste\]'),
        ("[londiste]\ndb=\nqueue_name=q\n", r'bad value "" for "db"'),
        ("[londiste]\ndb=dbname=a\n", '"queue_name" is missing'),
        ("db=1\n", "bad config file"),
        ("[londiste]\ndb=a\ndb=b\n", "bad config file .* already exists"),
        ("[londiste]\ndb=a\n[londiste3]\ndb=a\n", "of one meaning: keep one"),
        ("[londiste]\ndb=%(nope)s\nqueue_name=q\n", r'"db" refers to unknown "%\(nope\)s"'),
        ("[londiste]\ndb=%(db)s\nqueue_name=q\n", 'value of "db" refers to itself'),
        ("[londiste]\ndb=a\nqueue_name=q\nconfig_format=2\n", "config_format 2 is not supported"),
    ],
)
def test_files_that_cannot_be_used(ini, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_londiste(ini(text))
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("parallel_copies", "0", "a whole number, 1 or more"),
        ("parallel_copies", "many", "a whole number, 1 or more"),
        ("lock_timeout", "0", "a number of seconds greater than 0"),
        ("loop_delay", "nan", "a number of seconds, 0 or more"),
        ("loop_delay", "-1", "a number of seconds, 0 or more"),
        ("local_only", "maybe", "true or false"),
        ("event_format", "xml", "one of json, urlenc"),
        ("log_size", "ten", "a number of bytes"),
    ],
)
def test_bad_value_names_everything(ini, key: str, value: str, expected: str) -> None:
    path = ini(f"[londiste]\ndb=dbname=a\nqueue_name=q\n{key} = {value}\n")
    with pytest.raises(ConfigError) as caught:
        load_londiste(path)
    message = caught.value.message
    for part in (path, "[londiste]", f'"{key}"', f'"{value}"', f"expected {expected}"):
        assert part in message
    assert caught.value.values["key"] == key


def test_missing_file_and_binary_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_londiste(str(tmp_path / "none.ini"))
    (tmp_path / "x.ini").write_bytes(b"[londiste]\ndb=\xff\n")
    with pytest.raises(ConfigError, match="bad config file"):
        load_londiste(str(tmp_path / "x.ini"))


def test_sizes_and_lists(ini) -> None:
    got = load_londiste(
        ini("[londiste]\ndb=a\nqueue_name=q\nlog_size=2M\nregister_only_tables = a.*, b , ,c\n")
    )
    assert got.log_size == 2 << 20
    assert got.register_only_tables == ("a.*", "b", "c")


def test_pgqd_ini_of_the_seeds(ini) -> None:
    got = load_pgqd(
        ini(
            "[pgqd]\nbase_connstr = host=172.16.3.176 port=1921 user=postgres password=postgres\n"
            "initial_database = template1\nlogfile = /l/pgqd.log\npidfile = /p/pgqd.pid\n"
            "ticker_period = 0.2\ndatabase_list = a b,c\n",
            "pgqd.ini",
        )
    )
    assert got.ticker_period == 0.2
    assert got.database_list == ("a", "b", "c")
    assert (got.job_name, got.check_period, got.maint_period) == ("pgqd", 60.0, 120.0)
    assert got.warnings == ()


def test_pgqd_empty_section_is_all_defaults(ini) -> None:
    got = load_pgqd(ini("[pgqd]\n"))
    assert got == PgqdSettings(config_file=got.config_file)
    assert (got.stats_period, got.retry_period, got.connection_lifetime) == (30.0, 30.0, 3600.0)


def test_sample_has_the_lines_of_londiste_in_order() -> None:
    lines = iter(sample_ini(LondisteSettings, "londiste3").splitlines())
    for want in SEED_SAMPLE.splitlines():
        assert want in lines, f"missing or out of order: {want}"


def test_pgqd_sample_begins_as_the_c_ticker() -> None:
    assert sample_ini(PgqdSettings, "pgqd").startswith(SEED_PGQD_SAMPLE)


def test_sample_can_be_read_and_gives_the_defaults(ini) -> None:
    text = sample_ini(LondisteSettings, "londiste3", {"queue_name": "q"})
    got = load_londiste(ini(text))
    assert got.warnings == ()
    uncommented = "\n".join(
        line[1:] if line.startswith("#") and not line.startswith(("# ", "##")) else line
        for line in text.splitlines()
    )
    active = load_londiste(ini(uncommented))
    idle = ("local_only", "pgq_lazy_fetch", "pgq_autocommit")  # shown because upstream has them
    assert len(active.warnings) == len(idle)
    for name, warning in zip(idle, active.warnings, strict=True):
        assert f'"{name}" has no effect: ' in warning
    for name, _ in parameters(LondisteSettings):
        assert getattr(active, name) == getattr(got, name), name


def test_sample_takes_set_values() -> None:
    text = sample_ini(LondisteSettings, "londiste", {"parallel_copies": "4", "extra": "x"})
    assert "\nparallel_copies = 4\n" in text
    assert "\nextra = x\n" in text


@pytest.mark.parametrize("settings", [LondisteSettings, PgqdSettings])
def test_reference_names_every_key(settings) -> None:
    table = reference_table(settings)
    for name, _ in parameters(settings):
        assert f"| `{name}` |" in table


def test_settings_pickle(ini) -> None:
    got = load_londiste(ini(SEED_INI))
    assert pickle.loads(pickle.dumps(got)) == got
