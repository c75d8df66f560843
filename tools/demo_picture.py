"""A picture of the demo's live view for the manual, made from a real run of it.

`python -m tools.demo_picture [docs/images/demo.svg]` runs the demo (`--fast`: a small one), picks
three moments (the first copy, the subscriber away, the second leaf) and adds the summary. About
three minutes.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from vedur.demo import proof
from vedur.demo.__main__ import run
from vedur.demo.story import Story
from vedur.demo.view import Scene, bars, frame, node_lines

_WIDTH = 94
#: Stage, and what makes a moment of it worth a picture.
_MOMENTS = {
    3: lambda scene: (
        sum(0 < (bar.done / (bar.total or 1)) < 1 for bar in bars(scene)) * 10
        + sum(bar.finished for bar in bars(scene))
    ),
    4: lambda scene: sum(line.behind or 0 for line in node_lines(scene) if line.away),
    6: lambda scene: len(bars(scene)) + 10 * sum(bar.finished for bar in bars(scene)),
}


def main(path: Path, fast: bool) -> int:
    """Run the demo and write the picture."""
    best: dict[int, Scene] = {}

    def look(scene: Scene) -> None:
        number = scene.stage.number
        worth = _MOMENTS.get(number)
        if worth and (number not in best or worth(scene) > worth(best[number])):
            best[number] = scene

    console = Console(stderr=True)
    story = Story(console, fast=fast, on_scene=look)
    code = run(console, story, keep=False)
    if code == 0:
        path.write_text(picture(best, story))
        print(path)
    return code


def picture(best: dict[int, Scene], story: Story) -> str:
    """Arrange the moments below each other, as SVG that loads nothing from elsewhere."""
    console = Console(
        file=io.StringIO(), record=True, width=_WIDTH, force_terminal=True, color_system="truecolor"
    )
    for _, scene in sorted(best.items()):
        console.print(frame(scene))
    console.print(proof.summary(story.verdicts))
    console.print(Text("All tables are equal.", "bold green"))
    text = console.export_svg(title="vedur demo")
    return re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--fast"]
    sys.exit(main(Path(given[0] if given else "docs/images/demo.svg"), "--fast" in sys.argv))
