"""A table cut into ranges of pages, by which tasks share its rows. Pure.

How many ranges there are is the caller's business: copy weighs a table with what lies outside of
its pages (TOAST), so that slices of wide rows are not huge; compare counts pages. Nor do both read
the storage of a table by one statement: copy sees partitions as its snapshot does and must not keep
locks on them for as long as that lives.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageRange:
    """Pages [first, end); `end` None is open."""

    first: int
    end: int | None

    @property
    def whole(self) -> bool:
        """Is it all of the table?"""
        return self.first == 0 and self.end is None


def cut_pages(pages: int, count: int) -> tuple[PageRange, ...]:
    """Cut `pages` into `count` even ranges, fewer where there are fewer pages.

    Every page is in exactly one range. The last is open, for what came to the table meanwhile.
    """
    count = max(1, min(count, pages))
    firsts = [pages * i // count for i in range(count)]
    return tuple(
        PageRange(first, end) for first, end in zip(firsts, [*firsts[1:], None], strict=True)
    )
