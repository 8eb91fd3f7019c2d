from __future__ import annotations

import gzip

from hypothesis import given
from hypothesis import strategies as st

from llm360.data.packaged.readers import (
    convert,
    dictionary,
    docstrings,
    html_pages,
    html_text,
    matching_docs,
    standard_library,
)


def test_html_becomes_what_a_reader_sees():
    page = """<html><head><title>T</title><style>p {}</style></head><body><nav><ul><li>home</ul></nav>
      <h1>Title</h1><p>One &amp;
        two<br>three</p><script>if (a < b) {}</script><pre>  keep
    this</pre><ul><li>x</li><li>y</li></ul></body></html>"""
    assert html_text(page) == "Title\n\nOne & two\nthree\n\n  keep\n    this\n\nx\ny"


def test_an_unseen_tag_hides_up_to_its_own_end():
    assert html_text("<header><header>a</header><p>b</p></header>c") == "c"
    assert html_text("<html><head><title>a<body>b") == "b"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<&"), max_size=60))
def test_plain_text_keeps_its_words(text):
    assert html_text(f"<p>{text}</p>").split() == text.split()


@given(
    st.lists(st.sampled_from(["<p>", "</p>", "<pre>", "</pre>", "<nav>", "</nav>", "<br/>", "a ", "\n", "</b", "<!-"]))
)
def test_broken_html_never_fails_and_has_no_blank_lines_in_a_row(pieces):
    assert "\n\n\n" not in html_text("".join(pieces))


def test_pages_come_in_order_and_keep_bytes_that_are_not_utf8(tmp_path):
    for name, data in {"b.html": b"<p>b", "a/z.html": b"<p>z", "c.html": b"<p>\xff"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert list(html_pages(tmp_path)) == [("a/z.html", "z"), ("b.html", "b"), ("c.html", b"<p>\xff")]


def test_docstrings_have_qualified_names_and_order():
    code = '"""M."""\nclass A:\n    """A."""\n    async def f(self):\n        """F."""\ndef g(): ...\n'
    assert list(docstrings(code)) == [("", "M."), ("A", "A."), ("A.f", "F.")]
    assert list(docstrings("print 'two'")) == []
    assert list(docstrings("x = '\\0'\0")) == []


def test_matching_docs_have_unique_origins():
    code = b'def f():\n    """>>> 1"""\ndef f():\n    """>>> 2"""\ndef g():\n    """no"""\n'
    assert list(matching_docs([("m.py", code)], ">>> ")) == [("m.py:0:f", "f\n\n>>> 1"), ("m.py:1:f", "f\n\n>>> 2")]


def test_the_standard_library_has_code_and_neither_tests_nor_tables():
    names = [name for name, _ in standard_library()]
    assert names == sorted(names)
    assert {"argparse.py", "json/decoder.py"} <= set(names)
    assert not [n for n in names if n.startswith(("test/", "site-packages/", "encodings/", "_sysconfigdata"))]
    only, but = frozenset({"json"}), frozenset({"json"})
    assert {*standard_library(only=only)} | {*standard_library(but=but)} == {*standard_library()}


def test_convert_hands_on_what_is_not_utf8():
    assert list(convert([("a", b"x"), ("b", b"\xe9")], str.upper)) == [("a", "X"), ("b", b"\xe9")]


def test_a_dictionary_gives_each_article_once(tmp_path):
    articles = {"00-database-info": b"about\n", "ab": b"AB is one.\n", "cd": "CD: deux \u00e9.\n".encode()}
    text, lines, at = b"".join(articles.values()), [], 0
    for word, article in articles.items():
        lines += [f"{word}\t{dictd_number(at)}\t{dictd_number(len(article))}"]
        at += len(article)
    lines.append(lines[1].replace("ab", "also ab"))
    (tmp_path / "x.index").write_text("\n".join(lines) + "\n")
    (tmp_path / "x.dict.dz").write_bytes(gzip.compress(text))
    found = list(dictionary(tmp_path))
    assert [t for _, t in found] == [articles["ab"], articles["cd"]]
    assert [o for o, _ in found] == ["x@6:ab", "x@17:cd"]


def dictd_number(number: int) -> str:
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return (dictd_number(number // 64) if number >= 64 else "") + digits[number % 64]
