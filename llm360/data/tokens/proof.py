"""The proof that tiktoken gives the ids of a tokenizer.json's own library, made once and written as encoder.json.

Why merging by concatenation equals merging by pairs. Let every token's own bytes become that token (tried for each),
and let ids follow the order of the merges (read from the file). Take two neighbours x, y whose concatenation is a
token c: until then no merge has crossed the ends of c's bytes, so within them the merges were those that c's bytes
see alone, which end in c, and whose only state of two tokens is the pair that a merge makes into c; so x, y is that
pair, with that rank. Both libraries then have the same candidates in the same order at each step, and take the
leftmost of equal ones; by the same token a whole word in the vocabulary is its own id.
What is left is where a text is split into words, which is compared over Unicode.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from llm360.data.tokens.byte_level import Spec, alphabet, bytes_by_id, not_byte_level, not_plain
from llm360.data.tokens.engines import Encode, versions, with_tiktoken, with_tokenizers
from llm360.files import read_json, write_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE = "encoder.json"
FORMAT = "llm360-encoder/1"
SAMPLE = (
    "I'm you're he'd she'll we've it's 'twas I'M YOU'RE HE'D SHE'LL WE'VE IT'S can''t '' 's's 're",
    " a  b   c\t\td \n e\r\n\r\nf \n\n  g   ",
    "\n\t \u00a0\u2003\u3000 \u2028\u2029\u0085x\u00a0 y\u3000\u3000z \u200b\ufeff",
    "0 1 12 123 1234567890 3.14 1e-9 0x1F ٣٤٥ १२३ ½ Ⅷ ² 一二三",
    "中文没有空格。日本語のテキスト、한국어 문장 ไทย עברית العَرَبِيَّة हिन्दी",
    "e\u0301 é ﬁ Ǆ ß İ ı a\u0300\u0301\u0302 \u1100\u1161\u11a8 ñn\u0303",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇯🇵 ☃️ 𝔘𝔫𝔦 𐍈 \U0010ffff\ue000\ufffe",
    "".join(map(chr, range(0x20))) + "\x7f" + "".join(map(chr, range(0x80, 0xA1))),
    "<s> </s><unk> <s>text</s> <|fim_prefix|>a<|fim_suffix|>b<|fim_middle|> <|endoftext|> <pad> [INST] <0x0A> <mask>",
    "def f(x):\n    return {'a': [1, 2], \"b\": x**2}  # done!!\n\n\n\tif (a&&b)||!c: $x_1 = `y`;",
    "x" * 3000 + " " * 3000 + "\n" * 500 + "=" * 3000 + "7" * 1000 + "é" * 500 + " \n" * 500 + ".",
    "",
)
PROBES = "a1!"  # a letter, a digit, neither
SHAPES = "'sdmtlverSLx1 \n!"  # what GPT-2's split tells apart, and capitals, which it does not
CODE_POINTS = (range(0x20000), range(0x20000, 0x110000, 16))  # versions of Unicode differ in many places of the first


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proof:
    """Which library encodes, and what was compared before it was chosen.

    library: tiktoken or tokenizers. reason: why not tiktoken, else null. versions: of both libraries; null for one
    that was not there. texts, bytes: of the documents compared, beside the built-in sample of code_points and tokens.
    """

    library: str
    reason: str | None
    versions: dict[str, str | None]
    tokenizer_sha256: str
    tokens: int
    code_points: int
    texts: int
    bytes: int
    format: str = FORMAT


def write_proof(folder: Path, proof: Proof) -> None:
    """Write ``encoder.json`` into a tokenizer's folder."""
    write_json(folder / FILE, dataclasses.asdict(proof))


def written_proof(folder: Path, sha256: str) -> Proof | None:
    """Return the folder's proof when it is of this tokenizer.json and of the libraries installed here, else None."""
    path = folder / FILE
    found = read_json(path) if path.is_file() else {}
    if {**found, "format": FORMAT, "versions": versions(), "tokenizer_sha256": sha256} != found:
        return None
    return Proof(**found)


def prove(tokenizer: Tokenizer, spec: Spec, *, sha256: str, documents: Iterable[str]) -> Proof:
    """Compare both libraries on the vocabulary, on Unicode, on SAMPLE and on ``documents``; return what was found."""
    count = Counter[str]()
    reason = next((r for r in _reasons(tokenizer, spec, documents, count) if r), None)
    return Proof(
        library="tokenizers" if reason else "tiktoken",
        reason=reason,
        versions=versions(),
        tokenizer_sha256=sha256,
        tokens=count["tokens"],
        code_points=count["code_points"],
        texts=count["texts"],
        bytes=count["bytes"],
    )


def _reasons(tokenizer: Tokenizer, spec: Spec, documents: Iterable[str], count: Counter[str]) -> Iterator[str | None]:
    """Yield the outcome of each check, cheapest first: a reason or None."""
    yield None if versions()["tiktoken"] else "tiktoken is not installed"
    yield not_byte_level(spec) or not_plain(spec)
    yield _not_itself(tokenizer, spec, count)
    yield _split_otherwise(count)
    reference, fast = with_tokenizers(tokenizer), with_tiktoken({b: i for i, b in bytes_by_id(spec).items()})
    yield _first_difference(reference, fast, SAMPLE)
    yield _first_difference(reference, fast, _counted(documents, count))


def _not_itself(tokenizer: Tokenizer, spec: Spec, count: Counter[str]) -> str | None:
    from tokenizers import Tokenizer

    ids = bytes_by_id(spec).keys()
    tokens = [(token, i) for token, i in spec["model"]["vocab"].items() if i in ids]
    alone = Tokenizer(tokenizer.model).encode_batch_fast([token for token, _ in tokens], add_special_tokens=False)
    count["tokens"] = len(tokens)
    odd = [token for (token, i), found in zip(tokens, alone, strict=True) if found.ids != [i]]
    return f"token {odd[0]!r} is not what its bytes become" if odd else None


def _split_otherwise(count: Counter[str]) -> str | None:
    """Compare where the libraries split text, by vocabularies whose merges show it: a pair merges unless split."""
    shapes = [a.encode() + b.encode() for a, b in itertools.product(SHAPES, repeat=2)]
    for pairs, texts in (
        (_beside_bytes(), _classes(count)),
        (shapes, _shapes()),
        (shapes[::-1], _shapes()),  # of two pairs that overlap only the first can be seen
    ):
        ranks = {token: i for i, token in enumerate([*(bytes([b]) for b in range(256)), *pairs])}
        joined = ("é".join(some) for some in _batches(texts))
        if reason := _first_difference(with_tokenizers(_probe(ranks)), with_tiktoken(ranks), joined):
            return reason
    return None


def _classes(count: Counter[str]) -> Iterator[str]:
    """Yield every code point between PROBES: only a letter merges with the first, only a digit with what is beside
    the second, only what is neither of them nor a blank with the third, and a blank with none.
    """
    for code in itertools.chain(*CODE_POINTS):
        if not 0xD800 <= code < 0xE000:
            count["code_points"] += 1
            yield "a{0}1{0}!".format(chr(code))


def _shapes() -> Iterator[str]:
    """Yield every text of three of SHAPES, alone and after an apostrophe, and runs of one before another."""
    for text in map("".join, itertools.product(SHAPES, repeat=3)):
        yield from (text, f"'{text}")
    yield from (a * n + b for a, b in itertools.product(SHAPES, repeat=2) for n in (4, 5, 9))


def _batches(texts: Iterator[str], size: int = 64) -> Iterator[list[str]]:
    while batch := list(itertools.islice(texts, size)):
        yield batch


def _beside_bytes() -> list[bytes]:
    probes = [c.encode() for c in PROBES]
    every = [bytes([b]) for b in range(256)]
    return [p + b for p in probes for b in every] + [b + p for p in probes for b in every if b not in probes]


def _probe(ranks: dict[bytes, int]) -> Tokenizer:
    from tokenizers import Tokenizer, models, pre_tokenizers

    letter = {b: c for c, b in alphabet().items()}
    spelled = {"".join(letter[b] for b in token): i for token, i in ranks.items()}
    merges: list[Any] = [(token[0], token[1]) for token in spelled if len(token) == 2]
    probe = Tokenizer(models.BPE(vocab=spelled, merges=merges, cache_capacity=0))
    probe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return probe


def _counted(documents: Iterable[str], count: Counter[str]) -> Iterator[str]:
    for text in documents:
        count["texts"] += 1
        count["bytes"] += len(text.encode())
        yield text


def _first_difference(reference: Encode, fast: Encode, texts: Iterable[str]) -> str | None:
    for text in texts:
        try:
            (found,) = fast([text])
        except ValueError:
            continue  # tiktoken's limit: such a text is left to the reference when it is encoded, too
        (expected,) = reference([text])
        if not np.array_equal(expected, found):
            return f"it differs on {_shown(text, expected, found)}"
    return None


def _shown(text: str, expected: Any, found: Any) -> str:
    same = next((i for i, (a, b) in enumerate(itertools.zip_longest(expected, found)) if a != b), 0)
    return f"{text[:60]!r}{'...' if len(text) > 60 else ''} (from token {same} on)"
