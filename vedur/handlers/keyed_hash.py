"""BLAKE2s with a key, of one text or of many texts at once.

A keyed hash of one text costs some 0.5 µs, nearly all of it for making objects. Of many texts NumPy
computes the same function for all at once: every step of the algorithm (RFC 7693) is one operation
on an array that has a word of each text. Texts of more than 64 bytes need more than one round and
are hashed one by one, as are few texts.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

Words = np.ndarray[Any, np.dtype[np.uint32]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Offsets = np.ndarray[Any, np.dtype[np.int32]]

#: Fewer texts are hashed one by one.
FEW = 4000
#: Texts that are hashed together: more would not fit into the caches of a processor.
_AT_ONCE = 32_768
_BLOCK = 64  # bytes of a round
_STATE = np.array(
    [
        0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
        0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
    ],
    np.uint32,
)  # fmt: skip
#: In which order each of the ten rounds takes the words of a text.
_ORDER = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
    (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
    (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
    (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
    (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
    (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
    (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
    (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
    (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
)
#: Which four words of the state are mixed: first by column, then along diagonals.
_MIXED = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip
#: By how many bytes of a word belong to the text, the mask of these.
_KEPT = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF], np.uint32)


class KeyedHash:
    """Hashes under one key, of at most 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @cached_property
    def _ready(self) -> dict[int, Any]:
        """Hashes that have taken the key, by size: to copy one costs half of making one."""
        sizes = (4, 8, 16, 32)
        return {size: hashlib.blake2s(digest_size=size, key=self._key) for size in sizes}

    def of(self, text: str, size: int) -> Any:
        """Return the hash of a text, which gives `size` bytes: 4, 8, 16 or 32."""
        made = self._ready[size].copy()
        made.update(text.encode())
        return made

    def of_many(self, texts: pa.StringArray, size: int) -> Bytes:
        """Return the bytes of the hashes of texts, none of them null: a line for each."""
        _, places, data = texts.buffers()
        found = np.empty((len(texts), size), np.uint8)
        offsets = np.frombuffer(places or b"\0\0\0\0", np.int32)
        offsets = offsets[texts.offset : texts.offset + len(texts) + 1]
        sizes = np.diff(offsets)
        fits = (sizes > 0) & (sizes <= _BLOCK)
        alone = np.flatnonzero(~fits) if np.count_nonzero(fits) >= FEW else range(len(texts))
        if len(alone) < len(texts):
            bulk = np.flatnonzero(fits)
            text = np.concatenate((np.frombuffer(data, np.uint8), np.zeros(_BLOCK, np.uint8)))
            for at in range(0, len(bulk), _AT_ONCE):
                some = bulk[at : at + _AT_ONCE]
                words = _words(text, offsets[some], sizes[some])
                found[some] = self._mix(words, sizes[some], size)
        for number in alone:
            text_there = texts[int(number)].as_py()
            found[number] = np.frombuffer(self.of(text_there, size).digest(), np.uint8)
        return found

    def _mix(self, words: list[Words | None], sizes: Offsets, size: int) -> Bytes:
        """Compress texts of one block behind the block of the key."""
        count = len(sizes)
        start = self._after_key(size)
        state = [np.full(count, word, np.uint32) for word in (*start, *_STATE)]
        state[12] ^= sizes.astype(np.uint32) + np.uint32(_BLOCK)
        state[14] ^= np.uint32(0xFFFFFFFF)  # this is the last block
        _rounds(state, words)
        made = np.empty((count, size // 4), "<u4")
        for at in range(size // 4):
            made[:, at] = state[at] ^ state[at + 8] ^ start[at]
        return made.view(np.uint8)

    def _after_key(self, size: int) -> Words:
        """Return the state behind the first block, which is the key."""
        start = _STATE.copy()
        start[0] ^= np.uint32(0x01010000 | len(self._key) << 8 | size)
        words = np.frombuffer(self._key.ljust(_BLOCK, b"\0"), "<u4").astype(np.uint32)
        state = [np.full(1, word, np.uint32) for word in (*start, *_STATE)]
        state[12] ^= np.uint32(_BLOCK)
        _rounds(state, [words[at : at + 1] for at in range(16)])
        return np.array([start[at] ^ state[at][0] ^ state[at + 8][0] for at in range(8)], np.uint32)


def _words(text: Bytes, begins: Offsets, sizes: Offsets) -> list[Words | None]:
    """Return the texts as words of four bytes, filled up with zeros; None for words that none has.
    Behind the last of them there must be 64 bytes more."""
    blocks = np.ndarray((len(text) - _BLOCK + 1,), f"V{_BLOCK}", text, strides=(1,))
    by_text = blocks[begins].view("<u4").reshape(-1, 16)
    found: list[Words | None] = []
    least, most = int(sizes.min()), int(sizes.max())
    for at in range(16):
        if 4 * at >= most:
            found.append(None)
            continue
        word = by_text[:, at].astype(np.uint32)
        if least < 4 * at + 4:
            word &= _KEPT[np.clip(sizes - 4 * at, 0, 4)]
        found.append(word)
    return found


def _rounds(state: list[Words], words: list[Words | None]) -> None:
    """Mix the words of many texts into the sixteen words of their states, in place."""
    spare = np.empty_like(state[0])
    for order in _ORDER:
        for place, (a, b, c, d) in enumerate(_MIXED):
            one, other = words[order[2 * place]], words[order[2 * place + 1]]
            _half(state[a], state[b], state[c], state[d], one, spare, 16, 12)
            _half(state[a], state[b], state[c], state[d], other, spare, 8, 7)


def _half(
    a: Words, b: Words, c: Words, d: Words, word: Words | None, spare: Words, one: int, other: int
) -> None:
    np.add(a, b, a)
    if word is not None:
        np.add(a, word, a)
    np.bitwise_xor(d, a, d)
    _turn(d, one, spare)
    np.add(c, d, c)
    np.bitwise_xor(b, c, b)
    _turn(b, other, spare)


def _turn(word: Words, by: int, spare: Words) -> None:
    """Rotate to the right."""
    np.left_shift(word, 32 - by, spare)
    np.right_shift(word, by, word)
    np.bitwise_or(word, spare, word)
