from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from llm360.config import from_mapping
from llm360.data import sources as package
from llm360.data.documents import KINDS
from llm360.data.packaged.collect import Selection, collect, needed_packages
from llm360.data.packaged.packages import DebianPackage, PythonPackage, fetch_packages
from llm360.data.sources import load, named, sources
from llm360.errors import ConfigError, SourceError
from llm360.files import verify

CONF = Path(__file__).parents[4] / "conf" / "sources"


def selections(name: str) -> dict[str, Selection]:
    values = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    return {kind: from_mapping(Selection, value, where=f"{name}.{kind}") for kind, value in values.items()}


@pytest.mark.parametrize("name", ["debian", "python", "offline", "large"])
def test_a_set_has_every_kind_and_known_sources(name):
    chosen = selections(name)
    assert sorted(chosen) == sorted(KINDS)
    needed_packages(chosen)


def test_only_the_sets_that_say_so_need_apt_or_a_network():
    assert needed_packages(selections("offline")) == []
    assert all(isinstance(p, PythonPackage) for p in needed_packages(selections("python")))
    assert any(isinstance(p, DebianPackage) for p in needed_packages(selections("debian")))


def test_every_source_says_what_it_reads_and_under_which_licence():
    for source in sources().values():
        assert source.licence
        assert bool(source.reads) == bool(source.packages)
        assert all("==" in p.requirement for p in source.packages if isinstance(p, PythonPackage))


@pytest.mark.parametrize("kind", KINDS)
def test_the_offline_set_gives_text_of_every_kind(kind, tmp_path):
    stored, out = tmp_path / "packages", tmp_path / "out"
    stored.mkdir()
    out.mkdir()
    fetch_packages([], stored)
    selection = selections("offline")[kind]
    collect(kind, selection, packages=stored, out=out)
    manifest = verify(out)
    assert selection.limit_mb * 0.5e6 < manifest["bytes"] <= selection.limit_mb * 1e6
    assert manifest["sources"][0]["packages"][0]["version"]


def test_an_unknown_source_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="no source 'jane-austin'; did you mean 'jane-austen'"):
        named(("jane-austin",), kind="book")


def test_a_source_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match=r"'jane-austen' is of kind book; of kind c4 are git-doc"):
        named(("jane-austen",), kind="c4")


def test_a_kind_without_a_source_says_how_to_add_one():
    with pytest.raises(SourceError, match=r"sources\.github: names no source.*add a file"):
        named((), kind="github")


GOOD = """
from llm360.data.sources import Source
SOURCE = Source(name={name!r}, kind={kind!r}, packages=(), reads=(), licence="MIT", documents=lambda _: iter([]))
"""


@pytest.mark.parametrize(
    ("module", "code", "message"),
    [
        ("broken_one", "import no_such_module", r"broken_one\.py: ModuleNotFoundError"),
        ("broken_two", "x = (", r"broken_two\.py: SyntaxError"),
        ("broken_three", "x = 1", r"broken_three\.py: AttributeError.*SOURCE"),
        ("broken_four", "SOURCE = 1", "SOURCE is 1, expected a Source"),
        ("broken_five", GOOD.format(name="other", kind="book"), "names itself 'other', expected 'broken-five'"),
        ("broken_six", GOOD.format(name="broken-six", kind="boook"), "kind 'boook'; did you mean 'book'"),
    ],
)
def test_a_broken_file_is_loud(tmp_path, monkeypatch, module, code, message):
    (tmp_path / f"{module}.py").write_text(code)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    with pytest.raises(SourceError, match=message):
        load(module)


def test_one_file_adds_a_source(tmp_path, monkeypatch):
    (tmp_path / "my_books.py").write_text(GOOD.format(name="my-books", kind="book"))
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    assert "my-books" in sources.__wrapped__()
