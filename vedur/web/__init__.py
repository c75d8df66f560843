"""The status page: HTML, JSON and metrics of what `vedur.status` reads; the only door to HTTP."""
