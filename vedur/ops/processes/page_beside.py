"""The status page beside a worker, which must never be harmed by it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedur.config import LondisteSettings
from vedur.errors import VedurError

if TYPE_CHECKING:
    from vedur.ops.processes.web import StatusPage

log = logging.getLogger(__name__)


@dataclass
class PageBeside:
    """Serves the page where the ini has a `web_port`. Nothing here raises."""

    _page: StatusPage | None = None
    _wishes: tuple[object, ...] = ()

    def follow(self, settings: LondisteSettings) -> None:
        """Start, change or end the page as the settings say.

        A page that is as it should be is left alone: a new one would begin its history anew.
        """
        wishes = _wishes(settings)
        if self._page is not None and wishes == self._wishes:
            return
        self.stop()
        if not settings.web_port:
            return
        try:
            from vedur.ops.processes.web import StatusPage

            self._page = StatusPage.start(settings)
            self._wishes = wishes
        except VedurError as error:
            log.warning("%s; the worker goes on without it", error.message)
        except Exception as error:
            log.warning("the status page cannot start: %s; the worker goes on without it", error)

    def stop(self) -> None:
        """End the page."""
        page, self._page = self._page, None
        if page is None:
            return
        try:
            page.stop()
        except Exception as error:
            log.warning("the status page did not stop: %s", error)


def _wishes(settings: LondisteSettings) -> tuple[object, ...]:
    """Return what the page takes from the settings."""
    return (
        *(settings.web_host, settings.web_port, settings.web_hosts, settings.web_max_lag),
        *(settings.db, settings.queue_name, settings.job_name),
        *(settings.remote_extra_connstr, settings.remote_hosts),
    )
