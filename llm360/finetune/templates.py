"""Instruction templates: each makes (prompt, answer) drafts from one document's text.

A template that does not fit a document yields nothing. Those of PROSE fit any prose and ``code`` any code, so every
set of texts gives data.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping

ANSWER_CHARACTERS = 240
DRAFTS_PER_DOCUMENT = 4  # of one template, so that one long file does not fill a data set
ENTRY = re.compile(r"^(\S[^\n]{0,60})\n\s*\n?[ \t]+(\S[^\n]*(?:\n[ \t]+\S[^\n]*)*)", re.MULTILINE)
QUESTION = re.compile(r"^[ \t#*=]*((?:[A-Z0-9][^\n?]{9,150})\?)[ \t]*\n+((?:[^\n]+\n?)+)", re.MULTILINE)
SENTENCE = re.compile(r"[A-Z][^.!?\n]{30,200}[.!?](?=\s|$)")
PARAGRAPH = re.compile(r"(?:^|\n[ \t]*\n)((?:[^\n]*[^\W\d_]{2}[^\n]*\n?){2,})")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draft:
    """A prompt and its right answer."""

    prompt: str
    answer: str


Template = Callable[[str], Iterator[Draft]]


def docstring(text: str) -> Iterator[Draft]:
    """What does a Python function do? The first paragraph of its docstring says it."""
    for node, said in _documented(text):
        yield Draft(prompt=f"What does the Python function `{node.name}` do?", answer=said)


def signature(text: str) -> Iterator[Draft]:
    """Write the first line of the function that does what a docstring says."""
    for node, said in _documented(text):
        line = f"def {node.name}({ast.unparse(node.args)}):"
        yield Draft(prompt=f"Write the first line of a Python function for this purpose: {said}", answer=line)


def _documented(text: str) -> Iterator[tuple[ast.FunctionDef, str]]:
    for node in ast.walk(_parse(text)):
        if isinstance(node, ast.FunctionDef) and (doc := ast.get_docstring(node)):
            yield node, squeeze(doc.split("\n\n")[0])


def _parse(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in old files
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def definition(text: str) -> Iterator[Draft]:
    """Define a term: a line with the term, then its entry, indented (the form of dict servers)."""
    for term, entry in ENTRY.findall(text):
        if re.fullmatch(r"[\w.+#/ -]{2,40}", term) and not term.endswith(" "):
            yield Draft(prompt=f"Define {term}.", answer=squeeze(entry))


def question(text: str) -> Iterator[Draft]:
    """Answer a question of a FAQ: a heading that ends in a question mark, then a paragraph."""
    for asked, paragraph in QUESTION.findall(text):
        if "?" not in paragraph:  # a table of contents is no answer
            yield Draft(prompt=squeeze(asked), answer=_first_sentences(squeeze(paragraph)))


def _first_sentences(text: str) -> str:
    """Return whole sentences of about ANSWER_CHARACTERS; the first one, however long."""
    sentences = re.split(r"(?<=[.!])\s", text)
    lengths = itertools.accumulate(len(s) + 1 for s in sentences)
    within = sum(length <= ANSWER_CHARACTERS for length in lengths)
    return " ".join(sentences[: max(within, 1)])


def first_words(text: str) -> Iterator[Draft]:
    """Say how a sentence begins."""
    for sentence in SENTENCE.findall(text):
        yield Draft(prompt=f"Repeat the first three words: {sentence}", answer=" ".join(sentence.split()[:3]))


def correct_case(text: str) -> Iterator[Draft]:
    """Correct the case of a sentence that was written in capitals."""
    for sentence in SENTENCE.findall(text):
        yield Draft(prompt=f"Correct the case: {sentence.upper()}", answer=sentence)


def passage(text: str) -> Iterator[Draft]:
    """Continue a passage."""
    for paragraph in PARAGRAPH.findall(text):
        words = squeeze(paragraph).split(" ")[:80]
        if len(words) >= 20:
            half = len(words) // 2
            yield Draft(prompt=f"Continue the passage: {' '.join(words[:half])}", answer=" ".join(words[half:]))


def code(text: str) -> Iterator[Draft]:
    """Continue code of any language by four lines."""
    lines = [line for line in text.splitlines() if line.strip()]
    for i in range(0, len(lines) - 7, 8):
        shown, hidden = "\n".join(lines[i : i + 4]), "\n".join(lines[i + 4 : i + 8])
        yield Draft(prompt=f"Continue the code:\n{shown}", answer=hidden)


PROSE: Mapping[str, Template] = {"correct_case": correct_case, "first_words": first_words, "passage": passage}
BY_KIND: Mapping[str, Mapping[str, Template]] = {
    "starcoderdata": {"code": code, "docstring": docstring, "signature": signature},
    "stackexchange": {**PROSE, "question": question},
    "wikipedia": {**PROSE, "definition": definition},
}
TEMPLATES = tuple(sorted({name for group in [PROSE, *BY_KIND.values()] for name in group}))


def drafts(kind: str, template: str, text: str) -> list[Draft]:
    """Return the first drafts that a template makes of a document's text; none when it does not suit the kind."""
    make = BY_KIND.get(kind, PROSE).get(template)
    return [] if make is None else list(itertools.islice(make(text), DRAFTS_PER_DOCUMENT))


def squeeze(text: str) -> str:
    """Return ``text`` on one line with single spaces."""
    return " ".join(text.split())
