"""Write staged changes into the tables of the target, in the driver's one transaction."""

from __future__ import annotations
