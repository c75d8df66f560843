"""From an ini file and `--set` overrides to checked values.

Interpolation is upstream's: `%(name)s` is another key of the section or one of job_name,
config_name, config_dir, config_file, host_name, service_name; `%%` is a per cent sign. A single
`%` stays, because passwords contain it. Bad input raises `ConfigError` naming file, section, key
and value; what is merely suspicious becomes a warning for the caller to log.
"""

from __future__ import annotations

import configparser
import difflib
import re
import socket
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vedur.config.kinds import CONNSTR
from vedur.config.parameter import Parameter, parameters
from vedur.errors import ConfigError
from vedur.log import holds_password, mask_connstr

_REFERENCE = re.compile(r"%(%|\((\w+)\)s)")

#: Deep enough for any sane file, small enough to stop a reference to itself at once.
_MAX_DEPTH = 10

#: Keys of upstream that change nothing here, with the reason the operator gets.
WITHOUT_EFFECT = {
    "config_format": "only format 1 exists here",
    "exception_grace": "every error is logged as it happens",
    "exception_quiet": "every error is logged as it happens",
    "exception_reset": "every error is logged as it happens",
    "local_only": "events of tables that are not local are always left out",
    "local_only_drop_execute": "scripts always run; give them a condition (--*-- Need-Table: ...)",
    "local_tracking_file": "positions live in the database",
    "logdatefmt_console": "the log format is fixed, see log_format",
    "logdatefmt_console_verbose": "the log format is fixed, see log_format",
    "logdatefmt_file": "the log format is fixed, see log_format",
    "logdatefmt_file_verbose": "the log format is fixed, see log_format",
    "logfmt_console": "the log format is fixed, see log_format",
    "logfmt_console_verbose": "the log format is fixed, see log_format",
    "logfmt_file": "the log format is fixed, see log_format",
    "logfmt_file_verbose": "the log format is fixed, see log_format",
    "pgq_autocommit": "tasks read events by COPY",
    "pgq_lazy_fetch": "tasks read events by COPY",
    "sql_retry": "lost connections are always retried",
    "sql_retry_formula_a": "lost connections are always retried",
    "sql_retry_formula_b": "lost connections are always retried",
    "sql_retry_formula_cap": "lost connections are always retried",
    "sql_retry_max_count": "lost connections are always retried",
    "sql_retry_max_time": "lost connections are always retried",
    "subconsumer_name": "a worker has no subconsumers",
    "subconsumer_timeout": "a worker has no subconsumers",
    "table_filter": "add or remove tables on the node instead",
    "threaded_copy_pool_size": "every table is copied in slices, see max_connections_per_node",
    "threaded_copy_tables": "every table is copied in slices",
}


_NO_EFFECT = " has no effect: "


def for_every_command(warnings: Sequence[str]) -> list[str]:
    """Leave out warnings about keys that change nothing: an ini of Londiste has many."""
    return [warning for warning in warnings if _NO_EFFECT not in warning]


@dataclass(frozen=True)
class IniFile:
    """The raw text of a file: the section of the program, and `[spark]` beside it."""

    path: str
    section: str
    raw: dict[str, str]
    spark: dict[str, str]
    warnings: tuple[str, ...]


def read_ini(path: str, sections: Sequence[str]) -> IniFile:
    """Read `path` and return the one of `sections` that it has; the names are equal in meaning."""
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # spark keys have case
    try:
        with Path(path).open(encoding="utf-8") as stream:
            parser.read_file(stream, path)
    except OSError as error:
        raise ConfigError(f'cannot read config file "{path}": {error.strerror}') from error
    except (configparser.Error, UnicodeDecodeError) as error:
        raise ConfigError(f'bad config file "{path}": {_one_line(error)}') from error
    present = [name for name in sections if parser.has_section(name)]
    wanted = " or ".join(f"[{name}]" for name in sections)
    if not present:
        raise ConfigError(f'config file "{path}" has no section {wanted}')
    if len(present) > 1:
        both = " and ".join(f"[{name}]" for name in present)
        raise ConfigError(f'config file "{path}" has sections {both} of one meaning: keep one')
    spark = dict(parser.items("spark")) if parser.has_section("spark") else {}
    others = set(parser.sections()) - {"spark", "pgqd", "londiste3", "londiste", "vedur"}
    warnings = [f'{path}: unknown section "[{name}]" is ignored' for name in sorted(others)]
    raw = {key.lower(): value for key, value in parser.items(present[0])}
    return IniFile(path, present[0], raw, spark, tuple(warnings))


def _one_line(value: object) -> str:
    """Join the lines of a value, so that a message about it fits on one line."""
    return " ".join(str(value).split())


@dataclass
class Section:
    """The keys of one section on their way to values."""

    ini: IniFile
    known: dict[str, Parameter]
    variables: dict[str, str]

    def value(self, key: str, parameter: Parameter) -> Any:
        """Return the typed value of `key`; the default where the file does not have it."""
        if key not in self.ini.raw:
            if parameter.required:
                raise ConfigError(
                    f'config file "{self.ini.path}": "{key}" is missing in section '
                    f"[{self.ini.section}]",
                    file=self.ini.path,
                    section=self.ini.section,
                    key=key,
                )
            return parameter.default
        text = self._expand(key, self.ini.raw[key], parameter.template, 0).strip()
        if not text:
            if parameter.required:
                raise self._bad(key, text, parameter)
            # An empty value is how the sample writes "not set".
            return parameter.default if parameter.default is None else _empty(parameter, text)
        try:
            return parameter.kind.parse(text)
        except ValueError:
            raise self._bad(key, text, parameter) from None

    def _bad(self, key: str, text: str, parameter: Parameter) -> ConfigError:
        shown = _one_line(mask_connstr(text) if parameter.kind is CONNSTR else text)
        return ConfigError(
            f'config file "{self.ini.path}", section [{self.ini.section}]: bad value "{shown}" '
            f'for "{key}", expected {parameter.kind.expected}',
            file=self.ini.path,
            section=self.ini.section,
            key=key,
            value=shown,
            expected=parameter.kind.expected,
        )

    def _expand(self, key: str, text: str, template: bool, depth: int) -> str:
        if depth > _MAX_DEPTH:
            raise ConfigError(
                f'config file "{self.ini.path}", section [{self.ini.section}]: '
                f'the value of "{key}" refers to itself'
            )

        def replace(match: re.Match[str]) -> str:
            if match[1] == "%":
                return "%"
            name = match[2].lower()
            if name in self.ini.raw and not (name == key and name in self.variables):
                return self._expand(name, self.ini.raw[name], False, depth + 1)
            if name in self.variables:
                return self.variables[name]
            if template:
                return match[0]
            raise ConfigError(
                f'config file "{self.ini.path}", section [{self.ini.section}]: '
                f'the value of "{key}" refers to unknown "%({_one_line(match[2])})s"'
            )

        return _REFERENCE.sub(replace, text)


def _empty(parameter: Parameter, text: str) -> Any:
    """Return what an empty value means: an empty text or list, or else the default."""
    if not isinstance(parameter.default, (str, tuple)):
        return parameter.default
    try:
        return parameter.kind.parse(text)
    except ValueError:  # a choice among words
        return parameter.default


def read_values(
    settings: type[Any],
    path: str,
    *,
    sections: Sequence[str],
    overrides: Mapping[str, str],
    service: str,
) -> dict[str, Any]:
    """Read the values for the constructor of `settings`, with `config_file`, `warnings` and
    `spark`."""
    ini = read_ini(path, sections)
    known = dict(parameters(settings))
    by_alias = {alias: name for name, p in known.items() for alias in p.aliases}
    warnings = [*ini.warnings, *_exposed(ini)]
    raw = {by_alias[key]: text for key, text in ini.raw.items() if key in by_alias}
    raw |= {key: text for key, text in ini.raw.items() if key not in by_alias}
    given = {key.lower(): text for key, text in overrides.items()}
    raw |= {by_alias.get(key, key): text for key, text in given.items()}
    references = set().union(*(_referenced(text) for text in raw.values()))
    warnings += [
        _unknown(ini, key, known)
        for key in raw
        if key in WITHOUT_EFFECT or (key not in known and key not in references)
    ]
    form = _one_line(raw.get("config_format", "1"))
    if form not in ("", "1"):
        raise ConfigError(
            f'config file "{path}": config_format {form} is not supported: '
            "write references as %(name)s"
        )
    warnings += [
        f'{path}: [spark] "{key}" is ignored: keys of this section start with "spark."'
        for key in ini.spark
        if not key.startswith("spark.")
    ]
    section = Section(
        IniFile(path, ini.section, raw, ini.spark, ()), known, _variables(path, service)
    )
    values = {name: section.value(name, parameter) for name, parameter in known.items()}
    values["config_file"] = str(Path(path).absolute())
    values["warnings"] = tuple(warnings)
    values["spark"] = {k: v for k, v in ini.spark.items() if k.startswith("spark.")}
    return values


def _referenced(text: str) -> set[str]:
    return {match[2].lower() for match in _REFERENCE.finditer(text) if match[2]}


def _variables(path: str, service: str) -> dict[str, str]:
    absolute = Path(path).absolute()
    return {
        "job_name": absolute.stem,
        "config_name": absolute.stem,
        "config_file": str(absolute),
        "config_dir": str(absolute.parent),
        "host_name": socket.gethostname(),
        "service_name": service,
    }


def _unknown(ini: IniFile, key: str, known: Mapping[str, Parameter]) -> str:
    where = f"{ini.path}: [{ini.section}]"
    if key in WITHOUT_EFFECT:
        return f'{where} "{key}"{_NO_EFFECT}{WITHOUT_EFFECT[key]}'
    near = difflib.get_close_matches(key, known, n=1)
    hint = f', did you mean "{near[0]}"?' if near else ""
    return f'{where} unknown key "{key}" is ignored{hint}'


def _exposed(ini: IniFile) -> list[str]:
    """Return warnings when other users may read a password in the file, or may write the file."""
    try:
        mode = Path(ini.path).stat().st_mode
    except OSError:
        return []
    warnings = []
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        warnings.append(
            f"{ini.path}: can be written by others, who then decide what runs here and where it "
            f'connects: run "chmod go-w {ini.path}"'
        )
    password = any(holds_password(text) for text in ini.raw.values())
    password |= bool(ini.raw.get("obfuscator_key"))
    if password and mode & (stat.S_IRGRP | stat.S_IROTH):
        warnings.append(
            f"{ini.path}: holds a password and can be read by others: "
            f'run "chmod 600 {ini.path}" or use ~/.pgpass'
        )
    return warnings
