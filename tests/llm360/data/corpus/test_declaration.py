from __future__ import annotations

import dataclasses
import gzip
import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm360.config import from_mapping
from llm360.data import documents as documents_module
from llm360.data.corpus import ingest
from llm360.data.corpus.declaration import Corpus, Files, Hub, corpus_units, declared, recipe
from llm360.data.corpus.gather import write_corpus
from llm360.data.corpus.ingest import NAMED, read_corpus
from llm360.data.documents import Document, parts, read_documents
from llm360.data.packaged.collect import Selection
from llm360.errors import ConfigError, DataError, IntegrityError, SourceError
from llm360.files import entries, new_folder, read_manifest, sha256_bytes, sha256_file

KIND = "arxiv"


def corpus(root: Path, form: str = "jsonl", *patterns: str, **changed) -> Corpus:
    text = form == "text"
    fields = {
        "licence": "MIT",
        "text": None if text else "text",
        "id": None,
        "where": {},
        "max_bad": 0.9,
        "max_document_mb": 0.01,
        "limit_mb": None,
        "files": Files(format=form, root=str(root), patterns=patterns or ("**/*",)),
    }
    return Corpus(**fields | changed)


def build(chosen: Corpus, folder: Path, *, workers: int = 1) -> Path:
    """Build a kind as its stage does, and leave the work folder."""
    units = corpus_units(KIND, chosen)
    done = read_corpus(KIND, chosen, units, work=folder / "work", workers=workers)
    with new_folder(folder / "out") as out:
        write_corpus(KIND, chosen, done, work=folder / "work", out=out)
    return folder / "out"


def write_lines(path: Path, lines: list[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(line + b"\n" for line in lines)
    if path.suffix == ".gz":
        data = gzip.compress(data)
    if path.suffix == ".zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data)
        data = sink.getvalue().to_pybytes()
    path.write_bytes(data)
    return path


def line(text: str, **more) -> bytes:
    return json.dumps({"text": text, **more}).encode()


def skipped(folder: Path) -> dict[str, str]:
    return {entry["origin"]: entry["reason"] for entry in read_manifest(folder)["skipped"]}


def source(folder: Path) -> dict:
    return read_manifest(folder)["sources"][0]


def hashes(folder: Path) -> list:
    return [*entries(folder), sha256_file(folder / "manifest.json")]


# records, good and bad


BAD = {
    b'{"text": ': "not JSON",
    b"[" * 100_000: "longer than max_document_mb",
    b"[" * 9_000: "not JSON",
    b"[1]": "not a JSON object",
    b'{"text": "\xff"}': "not UTF-8",
    b'{"text": 3}': "the text is not a string",
    b'{"text": null}': "a field is missing",
    b'{"test": "x"}': "a field is missing",
    b'{"text": " \\n"}': "no text",
    b'{"text": "\\ud800"}': "not Unicode",
    line("x" * 20_000): "longer than max_document_mb",
}


@settings(max_examples=25, deadline=None)
@given(
    lines=st.lists(
        st.sampled_from(sorted(BAD))
        | st.text(min_size=1).map(lambda t: line(f"a{t}".encode(errors="replace").decode())),
        max_size=12,
    ),
    suffix=st.sampled_from(["", ".gz", ".zst"]),
)
def test_documents_in_are_documents_out_and_named_skips(tmp_path_factory, lines, suffix):
    folder = tmp_path_factory.mktemp("corpus")
    written = write_lines(folder / "in" / f"a.jsonl{suffix}", [line("first"), *lines])
    out = build(corpus(folder / "in"), folder)
    texts = read_documents(out)
    good = [json.loads(entry)["text"] for entry in [line("first"), *lines] if entry not in BAD]
    assert texts["text"].to_list() == good
    bad = {f"{written.name}:{number}": BAD[entry] for number, entry in enumerate(lines, 2) if entry in BAD}
    assert {place: reason.partition(":")[0] for place, reason in skipped(out).items()} == bad
    assert source(out)["records"] == 1 + len(lines) == len(texts) + source(out)["skipped"]
    assert sum(source(out)["reasons"].values()) == source(out)["skipped"] == len(bad)


def test_a_line_that_breaks_off_in_a_string_is_called_unterminated(tmp_path):
    write_lines(tmp_path / "in" / "a.jsonl", [line("one"), b'{"text": "broken', b'{"text": "broken\r'])
    reasons = skipped(build(corpus(tmp_path / "in"), tmp_path)).values()
    assert [reason.partition(" at")[0] for reason in reasons] == ["not JSON: Unterminated string starting"] * 2


def test_a_document_keeps_its_place_its_own_id_and_its_licence(tmp_path):
    write_lines(tmp_path / "in" / "a" / "b.jsonl", [b"", line("one", meta={"url": "u1"})])
    out = build(corpus(tmp_path / "in", id="meta.url"), tmp_path)
    (row,) = read_documents(out).rows(named=True)
    expected = Document(
        id="arxiv/a/b.jsonl:2", kind="arxiv", source="arxiv", origin="a/b.jsonl:2#u1", licence="MIT", text="one"
    )
    assert {name: row[name] for name in dataclasses.asdict(expected)} == dataclasses.asdict(expected)


def test_only_what_where_names_is_taken_and_the_rest_is_counted(tmp_path):
    lines = [line(str(i), meta={"set": "AB"[i % 2]}) for i in range(5)] + [line("none")]
    write_lines(tmp_path / "in" / "a.jsonl", lines)
    out = build(corpus(tmp_path / "in", where={"meta.set": "B"}), tmp_path)
    assert read_documents(out)["text"].to_list() == ["1", "3"]
    assert (source(out)["records"], source(out)["not_selected"], source(out)["skipped"]) == (6, 3, 1)
    assert skipped(out) == {"a.jsonl:6": "a field is missing: meta.set"}


def test_every_format_gives_the_same_documents(tmp_path):
    texts = [f"text {i} \u00fc\n" for i in range(300)]
    lines = [line(text, n=i) for i, text in enumerate(texts)]
    for suffix in ("jsonl", "jsonl.gz", "jsonl.zst"):
        write_lines(tmp_path / suffix / f"a.{suffix}", lines)
    (tmp_path / "parquet").mkdir()
    pq.write_table(pa.table({"text": texts, "n": list(range(300))}), tmp_path / "parquet" / "a.parquet")
    forms = {"jsonl": "jsonl", "jsonl.gz": "jsonl", "jsonl.zst": "jsonl", "parquet": "parquet"}
    for folder, form in forms.items():
        frame = read_documents(build(corpus(tmp_path / folder, form, id="n"), tmp_path / f"{folder}-out"))
        assert frame["text"].to_list() == texts
        assert frame["id"].to_list() == [f"arxiv/a.{folder}:{i}" for i in range(1, 301)]
        assert frame["origin"].str.split("#").list.last().to_list() == [str(i) for i in range(300)]


def test_a_folder_of_code_gives_a_document_a_file(tmp_path):
    for name, data in {"a.py": b"1", "b/c.py": b"2", "b/d.js": b"3", "b/e.py": b"\xff", "f.py": b" "}.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    (tmp_path / "in" / "long.py").write_bytes(b"x" * 10_001)
    out = build(corpus(tmp_path / "in", "text", "**/*.py"), tmp_path)
    assert read_documents(out)["origin"].to_list() == ["a.py", "b/c.py"]
    assert skipped(out) == {
        "b/e.py": "not UTF-8: at byte 0",
        "f.py": "no text: empty or white space",
        "long.py": "longer than max_document_mb: more than 10000 bytes",
    }


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_a_cut_stream_gives_all_before_the_cut_and_the_cut_is_named(tmp_path, suffix, keep):
    lines = [line(sha256_bytes(b"%d" % i)) for i in range(20_000)]
    path = write_lines(tmp_path / "in" / f"a.jsonl{suffix}", lines)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    out = build(corpus(tmp_path / "in"), tmp_path)
    count = len(read_documents(out))
    (place, reason), *others = skipped(out).items()
    assert (place, others) == (f"a.jsonl{suffix}:{count + 1}", [])
    assert reason.startswith("the file breaks off: Truncated compressed stream, after ")
    given = int(reason.split("after ")[1].split()[0])
    whole = sum(len(entry) + 1 for entry in lines[:count])
    assert whole <= given < whole + len(lines[count]) + 1  # the cut lies in the line that is named
    assert keep - 0.2 < count / len(lines) < keep + 0.01


def test_a_cut_parquet_file_is_named_and_the_others_are_read(tmp_path):
    (tmp_path / "in").mkdir()
    for name in "ab":
        pq.write_table(pa.table({"text": ["x"] * 10}), tmp_path / "in" / f"{name}.parquet")
    cut = tmp_path / "in" / "a.parquet"
    cut.write_bytes(cut.read_bytes()[:-5])
    out = build(corpus(tmp_path / "in", "parquet"), tmp_path)
    assert len(read_documents(out)) == 10
    ((place, reason),) = skipped(out).items()
    assert place == "a.parquet:1"
    assert reason.startswith("the file breaks off: not Parquet from here on (")


def test_parquet_without_the_column_or_with_bad_bytes_counts_every_row(tmp_path):
    (tmp_path / "in").mkdir()
    bad = pa.array([b"ok", b"\xff"])
    text = pa.StringArray.from_buffers(2, bad.buffers()[1], bad.buffers()[2])
    pq.write_table(pa.table({"text": text}), tmp_path / "in" / "a.parquet")
    pq.write_table(pa.table({"test": ["x", "y"]}), tmp_path / "in" / "b.parquet")
    out = build(corpus(tmp_path / "in", "parquet"), tmp_path)
    assert read_documents(out)["text"].to_list() == ["ok"]
    assert skipped(out) == {
        "a.parquet:2": "not UTF-8: at byte 0",
        "b.parquet:1": "a field is missing: text",
        "b.parquet:2": "a field is missing: text",
    }


def test_a_line_of_50_mb_is_read_or_skipped(tmp_path):
    lines = [line("before"), line("x" * 50_000_000), line("after")]
    write_lines(tmp_path / "in" / "a.jsonl", lines)
    small = build(corpus(tmp_path / "in", max_document_mb=1.0), tmp_path / "small")
    assert read_documents(small)["text"].to_list() == ["before", "after"]
    assert skipped(small) == {"a.jsonl:2": "longer than max_document_mb: 50000013 bytes in its line"}
    large = build(corpus(tmp_path / "in", max_document_mb=60.0), tmp_path / "large")
    assert read_documents(large)["bytes"].to_list() == [6, 50_000_000, 5]


def test_skipped_records_are_all_counted_but_named_only_so_far(tmp_path):
    for name in "ab":
        write_lines(tmp_path / "in" / f"{name}.jsonl", [line("good"), *[b"{"] * 100, *[line(" ")] * 3])
    out = build(corpus(tmp_path / "in", max_bad=0.999), tmp_path)
    assert source(out)["reasons"] == {"not JSON": 200, "no text": 6}
    assert list(skipped(out))[:3] == ["a.jsonl:2", "a.jsonl:3", "a.jsonl:4"]
    assert len(skipped(out)) == NAMED + 6


# thresholds


def test_too_many_bad_records_stop_the_run_with_the_arithmetic(tmp_path):
    write_lines(tmp_path / "in" / "a.jsonl", [line(str(i)) for i in range(997)] + [b"{"] * 3)
    expected = (
        r"arxiv: 3 of 1,000 records cannot be read \(0\.300%\), max_bad 0\.002 allows 2\. First: a\.jsonl:998: not"
    )
    with pytest.raises(DataError, match=expected):
        build(corpus(tmp_path / "in", max_bad=0.002), tmp_path)
    assert len(read_documents(build(corpus(tmp_path / "in", max_bad=0.003), tmp_path))) == 997


def test_documents_that_are_too_long_are_not_bad(tmp_path):
    write_lines(tmp_path / "in" / "a.jsonl", [line("x"), line("x" * 20_000)])
    assert len(read_documents(build(corpus(tmp_path / "in", max_bad=0.0), tmp_path))) == 1


def test_a_wrong_field_is_noticed_before_all_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(ingest, "JUDGED", 10)
    for name in "abc":
        write_lines(tmp_path / "in" / f"{name}.jsonl", [line("x")] * 8)
    with pytest.raises(DataError, match=r"8 of 8 records cannot be read .*a field is missing: content"):
        build(corpus(tmp_path / "in", text="content", max_bad=0.5), tmp_path)
    assert not (tmp_path / "work" / "000001.json").exists()


def test_no_document_says_what_there_was(tmp_path):
    write_lines(tmp_path / "in" / "a.jsonl", [line("x", set="A"), line("x" * 20_000, set="B")])
    message = r"no document in 2 records of 1 files or shards \(1 not selected, {'longer than max_document_mb': 1}\)"
    with pytest.raises(DataError, match=message):
        build(corpus(tmp_path / "in", where={"set": "B"}), tmp_path)


def test_a_limit_is_shared_by_the_files_and_says_that_they_are_not_whole(tmp_path):
    for name, count in {"a": 100, "b": 3}.items():
        write_lines(tmp_path / "in" / f"{name}.jsonl", [line("x" * 100)] * count)
    out = build(corpus(tmp_path / "in", limit_mb=0.002), tmp_path)
    assert [p.documents for p in parts(out)] == [10, 3]
    assert source(out)["whole"] is False
    lines = [json.loads(entry) for entry in (out / "inputs.jsonl").read_text().splitlines()]
    assert [(entry["records"], entry["whole"]) for entry in lines] == [(10, False), (3, True)]


# parallel work, kills and changed files


@pytest.fixture
def many(tmp_path) -> Corpus:
    for i in range(5):
        bad = [b"{"] if i % 2 else []
        write_lines(tmp_path / "in" / f"{i}.jsonl", [line(f"text {i} {j}") for j in range(20)] + bad)
    return corpus(tmp_path / "in")


def test_one_worker_and_two_give_the_same_bytes(tmp_path, many):
    one, two = build(many, tmp_path / "1"), build(many, tmp_path / "2", workers=2)
    assert hashes(one) == hashes(two)
    assert [p.file for p in parts(one)] == [0, 1, 2, 3, 4]


def test_the_hash_of_every_input_is_kept_and_nothing_of_this_machine(tmp_path, many):
    out = build(many, tmp_path)
    lines = [json.loads(entry) for entry in (out / "inputs.jsonl").read_text().splitlines()]
    found = {entry["path"]: (entry["bytes"], entry["sha256"]) for unit in lines for entry in unit["inputs"]}
    files = sorted((tmp_path / "in").iterdir())
    assert found == {f.name: (f.stat().st_size, sha256_file(f)) for f in files}
    for file in (out / "inputs.jsonl", out / "manifest.json"):
        assert str(tmp_path) not in file.read_text()
        assert "mtime" not in file.read_text()


def test_a_build_that_was_killed_reads_only_what_is_missing_and_ends_the_same(tmp_path, many, monkeypatch):
    whole = hashes(build(many, tmp_path / "whole"))
    read, units = [], corpus_units(KIND, many)
    real = ingest.unit_records

    def records(chosen, unit):
        read.append(unit.number)
        if len(read) == 3:
            raise KeyboardInterrupt
        return real(chosen, unit)

    monkeypatch.setattr(ingest, "unit_records", records)
    with pytest.raises(KeyboardInterrupt):
        read_corpus(KIND, many, units, work=tmp_path / "work", workers=1)
    half = tmp_path / "work" / "000002" / "documents" / "part_00000.parquet"  # what kill -9 may leave of a unit
    half.parent.mkdir(parents=True, exist_ok=True)
    half.write_bytes(b"half")
    assert hashes(build(many, tmp_path)) == whole
    assert read == [0, 1, 2, 2, 3, 4]
    assert hashes(build(many, tmp_path)) == whole  # gathered once more, as after a kill at the very end
    assert read == [0, 1, 2, 2, 3, 4]


def test_a_file_that_changed_between_runs_of_a_build_is_named(tmp_path, many):
    build(many, tmp_path)
    changed = tmp_path / "in" / "3.jsonl"
    before = sha256_file(changed)
    write_lines(changed, [line("other")])
    after = sha256_file(changed)
    with pytest.raises(IntegrityError, match=rf"3\.jsonl: sha256 {after}, expected {before}, .*bring that file back"):
        build(many, tmp_path)
    units = corpus_units(KIND, many)
    changed.unlink()
    with pytest.raises(IntegrityError, match=r"3\.jsonl: gone since this build began"):
        read_corpus(KIND, many, units, work=tmp_path / "work", workers=1)


def test_a_file_that_was_only_touched_is_the_same(tmp_path, many):
    whole = hashes(build(many, tmp_path))
    (tmp_path / "in" / "3.jsonl").touch()
    assert hashes(build(many, tmp_path)) == whole


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path, many, monkeypatch):
    real = ingest.unit_records

    def records(chosen, unit):
        yield from real(chosen, unit)
        write_lines(tmp_path / "in" / unit.paths[0], [line("other")])

    monkeypatch.setattr(ingest, "unit_records", records)
    with pytest.raises(IntegrityError, match=r"0\.jsonl: sha256 .*expected"):
        build(many, tmp_path)
    assert not (tmp_path / "work" / "000000.json").exists()


def test_large_files_make_several_parts_of_one_number(tmp_path, many, monkeypatch):
    monkeypatch.setattr(documents_module, "PART_BYTES", 100)
    found = parts(build(many, tmp_path))
    assert len(found) > 5
    assert [p.file for p in found] == sorted(p.file for p in found)
    assert len({p.path for p in found}) == len(found)


# declarations


def test_what_is_read_decides_the_recipe_and_where_it_lies_does_not(tmp_path, many):
    units = corpus_units(KIND, many)
    same = dataclasses.replace(many, max_bad=0.1, tokens=5, files=dataclasses.replace(many.files, root="/elsewhere"))
    assert recipe(KIND, many, units) == recipe(KIND, same, units)
    for other in ({"text": "t"}, {"id": "i"}, {"where": {"a": "b"}}, {"limit_mb": 1.0}, {"max_document_mb": 2.0}):
        assert recipe(KIND, many, units) != recipe(KIND, dataclasses.replace(many, **other), units)
    assert recipe(KIND, many, units) != recipe(KIND, many, units[:-1])


SECTION = {
    "licence": "MIT", "text": "text", "id": None, "where": {}, "max_bad": 0.001, "max_document_mb": 1.0,
    "limit_mb": None,
}  # fmt: skip
FILES = {"format": "jsonl", "root": "r", "patterns": ["*.jsonl"]}
HUB = {"dataset": "o/n", "config": None, "data_dir": None, "split": "train", "revision": None}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (SECTION, "files, hub: expected exactly one of them"),
        (SECTION | {"files": FILES, "hub": HUB}, "files, hub: expected exactly one of them"),
        (SECTION | {"files": FILES | {"format": "json"}}, "did you mean 'jsonl'"),
        (
            SECTION | {"files": FILES | {"patterns": ["../*"]}},
            r"patterns: read '\.\./\*', expected a pattern below root",
        ),
        (SECTION | {"files": FILES | {"patterns": ["/a/*"]}}, "patterns: read '/a/\\*'"),
        (
            SECTION | {"files": FILES | {"format": "text"}},
            "files of format text have no fields; set text and id to null",
        ),
        (SECTION | {"files": FILES, "text": None}, "text: read null, expected the name of the field"),
        (SECTION | {"files": FILES, "max_bad": 1.5}, r"max_bad: read 1\.5, expected a share"),
        (SECTION | {"files": FILES, "max_document_mb": 0.0}, "max_document_mb: read 0.0, expected a number above 0"),
        (SECTION | {"files": FILES, "limit_mb": 0.0}, "limit_mb: read 0.0"),
        (SECTION | {"files": FILES, "max_bda": 1}, "did you mean 'max_bad'"),
        (SECTION | {"hub": HUB | {"revision": "main"}}, "revision: read 'main', expected a commit of 40 hex digits"),
    ],
)
def test_a_mistake_in_a_section_is_named(section, message):
    with pytest.raises(ConfigError, match=rf"^here.*{message}"):
        declared(KIND, section, where="here")


def test_packaged_sources_are_told_by_their_names():
    section = {"names": ["x"], "limit_mb": 1.0, "part_kb": 2, "tokens": 3}
    assert isinstance(declared(KIND, section, where="here"), Selection)
    with pytest.raises(ConfigError, match="kind 'My Code', expected lower-case letters"):
        declared("My Code", section, where="here")


def test_what_is_not_there_says_what_would_bring_it(tmp_path):
    with pytest.raises(SourceError, match=r"arxiv: no folder .*nowhere; bring the corpus there or set files\.root"):
        corpus_units(KIND, corpus(tmp_path / "nowhere"))
    with pytest.raises(SourceError, match=r"no file below .* matches \*\.jsonl; mend the patterns"):
        corpus_units(KIND, corpus(tmp_path, "jsonl", "*.jsonl"))
    (tmp_path / "\udcff.jsonl").write_bytes(b"")
    with pytest.raises(SourceError, match=r"the file name '\\udcff\.jsonl' is not UTF-8; rename it"):
        corpus_units(KIND, corpus(tmp_path, "jsonl", "*.jsonl"))


# the Hub: a folder in place of a dataset's name goes the same way through `datasets`


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for i in range(3):
        write_lines(tmp_path / "data" / f"f{i}.jsonl", [line(f"{i} {j}", meta={"set": "AB"[j % 2]}) for j in range(4)])
    return corpus(tmp_path, files=None, hub=from_mapping(Hub, HUB | {"dataset": str(tmp_path / "data")}, where="hub"))


def at(chosen: Corpus, revision: str | None = "ab" * 20) -> Corpus:
    return dataclasses.replace(chosen, hub=dataclasses.replace(chosen.hub, revision=revision))


def test_a_dataset_is_streamed_shard_by_shard_and_named_by_its_commit(tmp_path, dataset):
    chosen = dataclasses.replace(at(dataset), where={"meta.set": "B"})
    out = build(chosen, tmp_path / "1")
    frame = read_documents(out)
    assert frame["text"].to_list() == ["0 1", "0 3", "1 1", "1 3", "2 1", "2 3"]
    assert frame["id"].to_list()[:3] == ["arxiv/train/00000:2", "arxiv/train/00000:4", "arxiv/train/00001:2"]
    assert [p.file for p in parts(out)] == [0, 1, 2]
    (first, *_) = (json.loads(entry) for entry in (out / "inputs.jsonl").read_text().splitlines())
    assert first["inputs"] == [{"path": "train/00000", "dataset": chosen.hub.dataset, "revision": "ab" * 20}]
    unit = corpus_units(KIND, chosen)[1]
    assert list(pickle.loads(pickle.dumps(unit)).shard) == list(unit.shard)  # as it goes to another process


def test_a_dataset_needs_a_commit(dataset):
    with pytest.raises(SourceError, match=r"arxiv: hub\.revision is null; give the commit of .*/commits/main"):
        corpus_units(KIND, at(dataset, None))


def test_a_dataset_that_cannot_be_opened_is_named(tmp_path, dataset):
    missing = dataclasses.replace(dataset.hub, dataset=str(tmp_path / "nothing"), revision="ab" * 20)
    with pytest.raises(SourceError, match=r"nothing at (ab)+ cannot be opened \(.*check its name, split and commit"):
        corpus_units(KIND, dataclasses.replace(dataset, hub=missing))


def test_a_shard_that_breaks_off_stops_the_run_since_nobody_knows_what_is_lost(tmp_path, dataset):
    with open(tmp_path / "data" / "f1.jsonl", "ab") as file:
        file.write(b"{bad\n" + line("after") + b"\n")
    with pytest.raises(SourceError, match=r"shard train/00001 breaks off after record \d+ \(.*declare them as `files`"):
        build(at(dataset), tmp_path)
    assert (tmp_path / "work" / "000000.json").exists()
    assert not (tmp_path / "work" / "000001.json").exists()
