"""`encoding` replaces what upstream's validator replaces, byte by byte."""

from __future__ import annotations

import json
import subprocess
from urllib.parse import quote_plus

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.fixtures.wants import wanting
from tests.labs.upstream import SYSTEM_PYTHON
from vedur.change.formats import decode_urlenc, mend, mended_urlenc, readable

PROGRAM = """
import json, sys
from skytools import safe_utf8_decode
json.dump([safe_utf8_decode(bytes.fromhex(text))[1] for text in json.load(sys.stdin)], sys.stdout)
"""

_bad = st.sampled_from(
    [b"\xe9", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\0"]
)
_good = st.text(st.characters(codec="utf-8"), max_size=4).map(str.encode)
VALUES = st.lists(
    st.lists(_bad | _good | st.binary(max_size=4), max_size=6).map(b"".join),
    min_size=1,
    max_size=30,
)


def is_there() -> bool:
    try:
        command = [SYSTEM_PYTHON, "-c", "import skytools"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.hypothesis
@pytest.mark.skipif(not is_there(), reason=wanting("upstream's londiste"))
@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
@given(VALUES)
@example([b"caf\xe9", b"\xe2\x82", b"\xed\xa0\x80\xed\xb0\x80", b"a\0b", b""])
def test_the_same_as_upstream(values: list[bytes]) -> None:
    done = subprocess.run(
        [SYSTEM_PYTHON, "-c", PROGRAM],
        input=json.dumps([value.hex() for value in values]),
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = json.loads(done.stdout)
    assert [mend(value) for value in values] == theirs
    data = "&".join(f"c{at}={quote_plus(value)}" for at, value in enumerate(values))
    assert list(decode_urlenc(mended_urlenc(data)).values()) == theirs


def test_only_rows_of_some_tables_are_mended() -> None:
    row = b'2\t7\t\t\tI\t%s\t{"v":"\xe9\\\\t"}\n'
    mended = '2\t7\t\t\tI\tt\t{"v":"\ufffd\\\\t"}\n'.encode()
    found = readable(row % b"t" + row % b"u", {b"t"})
    assert found.startswith(mended) and b"not UTF-8" in found[len(mended) :]


def test_what_is_text_stays_as_it_is() -> None:
    data = "a=gr%c3%bc%c3%9f+x&b&c=%25%zz&d="
    assert mended_urlenc(data) == data
