"""What is known about one parameter, carried by the dataclass field that holds its value."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vedur.config.kinds import Kind

_KEY = "parameter"


@dataclass(frozen=True)
class Parameter:
    """Kind, words and place of one key of an ini section.

    doc         comment above the key in the `--ini` sample, one string with newlines
    group       heading in the sample and the reference page
    sample      text of the line in the sample; the default where None
    active      the sample shows the key without `#`: a user has to decide it
    glued       no empty line before it in the sample
    required    reading fails when it is missing
    template    holds `%(...)` of its own, which unknown to the ini stays as it is
    ours        Londiste has no such key
    aliases     older spellings
    """

    kind: Kind
    default: Any
    doc: str
    group: str
    sample: str | None = None
    active: bool = False
    glued: bool = False
    required: bool = False
    template: bool = False
    ours: bool = False
    aliases: tuple[str, ...] = ()


def declare(kind: Kind, default: Any, doc: str, group: str, **more: Any) -> Any:
    """Make a dataclass field that carries its parameter. Typed `Any` as `dataclasses.field` is."""
    return dataclasses.field(
        default=default, metadata={_KEY: Parameter(kind, default, doc, group, **more)}
    )


def parameters(settings: type[Any]) -> Iterator[tuple[str, Parameter]]:
    """List name and parameter of every key, in the order of declaration."""
    for item in dataclasses.fields(settings):
        if _KEY in item.metadata:
            yield item.name, item.metadata[_KEY]
