"""Write the generated pages of the manual."""

from __future__ import annotations

import sys

from vedur.cli.manual.pages import main

main(sys.argv[1:])
