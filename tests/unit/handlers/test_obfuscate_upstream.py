"""obfuscate gives what upstream's handler of this name gives, value by value."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.fixtures.wants import wanting
from tests.labs.handlers import KEY
from tests.unit.handlers.test_obfuscate import make

PYTHON = "/usr/bin/python3"
#: Rules that both have.
RULES: dict[str, Any] = {
    "a": "hash",
    "b": "hash32",
    "c": "hash64",
    "d": "keep",
    "e": "skip",
    "f": {"x": "keep", "y": {"z": "hash", "n": "hash32"}, "s": "skip", "l": "hash64"},
}
PROGRAM = """
import json, sys
import londiste.handlers.obfuscate as upstream
told = json.load(sys.stdin)
upstream._KEY = told["key"].encode()
upstream.Obfuscator.obf_map = {"public.t": told["rules"]}
handler = upstream.Obfuscator("public.t", {}, "public.t")
names = list(told["rules"])
kept = [n for n in names if told["rules"][n] != "skip"]
import skytools
answers = []
for row in told["rows"]:
    line = "\\t".join(skytools.quote_copy(v) for v, n in zip(row, names) if n in kept) + "\\n"
    done = handler.obf_copy_row(line, kept, "public.t")
    answers.append([skytools.unescape_copy(v) for v in done[:-1].split("\\t")])
json.dump(answers, sys.stdout)
"""

_text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
_scalar = st.none() | _text | st.integers(-(2**40), 2**40) | st.booleans()
_doc = st.dictionaries(
    st.sampled_from("xysl"),
    _scalar | st.lists(_scalar, max_size=2) | st.dictionaries(st.sampled_from("znq"), _scalar),
)
ROWS = st.lists(
    st.tuples(*[st.none() | _text] * 5, st.none() | _doc.map(json.dumps)), min_size=1, max_size=20
)


def is_there() -> bool:
    try:
        text = "import londiste.handlers.obfuscate"
        return (
            subprocess.run([PYTHON, "-c", text], capture_output=True, check=False).returncode == 0
        )
    except OSError:
        return False


@pytest.mark.hypothesis
@pytest.mark.skipif(not is_there(), reason=wanting("upstream's londiste"))
@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
@given(ROWS)
def test_the_same_as_upstream(rows: list[tuple[str | None, ...]]) -> None:
    told = json.dumps({"key": KEY, "rules": RULES, "rows": rows})
    done = subprocess.run(
        [PYTHON, "-c", PROGRAM], input=told, capture_output=True, text=True, check=True
    )
    theirs = json.loads(done.stdout)
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    ours = make(RULES).rows(pa.RecordBatch.from_arrays(columns, list(RULES))).to_pylist()
    for mine, other in zip(ours, theirs, strict=True):
        assert list(mine) == ["a", "b", "c", "d", "f"]
        *plain, doc = mine.values()
        assert plain == other[:-1]
        assert (doc and json.loads(doc)) == (other[-1] and json.loads(other[-1]))
