"""Text made from the parameter tables: the `--ini` sample and the reference page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vedur.config.parameter import Parameter, parameters


def sample_ini(
    settings: type[Any], section: str, overrides: Mapping[str, str] | None = None
) -> str:
    """Write a commented sample file; keys given in `overrides` are active and have that value."""
    given = dict(overrides or {})
    out = [f"[{section}]\n"]
    group = ""
    for name, parameter in parameters(settings):
        if parameter.group != group:
            gap = "\n" * settings.GROUP_GAP if group else ""
            group = parameter.group
            out.append(f"{gap}\n## {group.strip()} ##\n")
        out.append("" if parameter.glued else "\n")
        out.append(_entry(name, parameter, given.pop(name, None)))
    if given:
        out.append("\n" + "".join(f"{name} = {text}\n" for name, text in given.items()))
    return "".join(out) + "".join(f"\n{extra}" for extra in settings.SAMPLE_TAIL)


def _entry(name: str, parameter: Parameter, given: str | None) -> str:
    comment = "".join(f"{line}\n" for line in _comment_lines(parameter.doc))
    text = sample_text(parameter) if given is None else given
    mark = "" if parameter.active or given is not None else "#"
    return f"{comment}{mark}{name} = {text}".rstrip() + "\n"


def _comment_lines(doc: str) -> list[str]:
    # A line that brings its own hash is a heading, as in the ini of the walk-through
    # ("## compare/repair").
    return [line if line.startswith("#") else f"# {line}" for line in doc.splitlines()]


def sample_text(parameter: Parameter) -> str:
    """Return a value as an ini spells it."""
    if parameter.sample is not None:
        return parameter.sample
    return _spelled(parameter.default)


def _spelled(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def reference_table(settings: type[Any]) -> str:
    """Write a Markdown table of every key: name, default, meaning; keys that are new in Vedur are
    marked."""
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for name, parameter in parameters(settings):
        words = " ".join(
            line for line in parameter.doc.splitlines() if not line.startswith("#")
        ).replace("|", "\\|")
        default = "required" if parameter.required else sample_text(parameter)
        shown = f"`{default}`".replace("|", "\\|") if default else ""
        rows.append(f"| `{name}` | {shown} | {words}{' (new in Vedur)' * parameter.ours} |")
    return "\n".join(rows) + "\n"
