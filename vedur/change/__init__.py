"""What a change is: event types, the three payload formats, net change of a key. Pure."""

from __future__ import annotations
