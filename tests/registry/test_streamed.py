"""A chunk of the real Amber's layout, read from a small Hub on this machine: what moves, what is refused."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import numpy as np
import pytest

import registry
from llm360.errors import IntegrityError, InvalidId, NotFound, NotReleased, StoreUnavailable
from registry import ArtifactId, StreamedChunk, api, use_store
from registry.hub import HubStore

COMMIT = "d" * 40
PATH = "train/train_355.jsonl"
ROW_TOKENS, ROWS = 2049, 1000  # 11 MB: many times what a first read asks for


class Hub:
    """One data set with files, in the words that the Hub's client asks for; counts the bytes of files that it sent."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.sent = 0
        handler = type("Handler", (Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"

    def entry(self, path: str) -> dict:
        data = self.files[path]
        lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return {"type": "file", "oid": "0" * 40, "size": len(data), "path": path, "lfs": lfs}


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/datasets/LLM360/AmberDatasets/revision/"):
            siblings = [{"rfilename": p} for p in self.hub.files]
            self.answer({"id": "LLM360/AmberDatasets", "sha": COMMIT, "siblings": siblings, "tags": []})
        elif path.startswith(f"/api/datasets/LLM360/AmberDatasets/tree/{COMMIT}"):
            self.answer([self.hub.entry(p) for p in self.hub.files])
        elif path.startswith(f"/datasets/LLM360/AmberDatasets/resolve/{COMMIT}/"):
            self.file(path.partition(f"{COMMIT}/")[2])
        else:
            self.answer({"error": f"no {path}"}, status=404)

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        asked = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body)["paths"]
        self.answer([self.hub.entry(p) for p in asked if p in self.hub.files])

    def file(self, path: str) -> None:
        data = self.hub.files[path]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        first, last = (int(wanted[1]), int(wanted[2] or len(data) - 1)) if wanted else (0, len(data) - 1)
        part = data[first : last + 1]
        sha256 = self.hub.entry(path)["lfs"]["oid"]
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{sha256}"', "X-Linked-Etag": f'"{sha256}"'}
        headers |= {"X-Linked-Size": str(len(data)), "Content-Range": f"bytes {first}-{last}/{len(data)}"}
        self.hub.sent += len(part) if self.command == "GET" else 0
        self.answer(part, status=206 if wanted else 200, headers=headers)

    def answer(self, value: object, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


TOKENS = np.random.default_rng(0).integers(0, 32_000, (ROWS, ROW_TOKENS))
KINDS = ["arxiv"] * 600 + ["book"] * 400


def line(row: int) -> str:
    return json.dumps({"token_ids": TOKENS[row].tolist(), "source": KINDS[row]})


@pytest.fixture(scope="module")
def published() -> bytes:
    return "".join(line(row) + "\n" for row in range(ROWS)).encode()


@pytest.fixture
def hub(published, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    hub = Hub()
    hub.files[PATH] = published
    thread = threading.Thread(target=hub.server.serve_forever, daemon=True)
    thread.start()
    with use_store(HubStore(endpoint=hub.endpoint, cache=tmp_path / "cache")):
        yield hub
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()


def test_the_first_rows_move_a_small_part_of_the_file(hub, published):
    chunk = registry.load_chunk("amber", chunk=355)
    assert isinstance(chunk, StreamedChunk)
    head = chunk.head(10)
    assert (head.tokens.dtype, head.tokens.tolist()) == (np.uint16, TOKENS[:10].tolist())
    assert 0 < hub.sent < len(published) / 20


def test_every_row_comes_in_order_with_its_kind(hub):
    blocks = list(registry.load_chunk("amber", chunk=355).rows())
    assert np.array_equal(np.concatenate([b.tokens for b in blocks]), TOKENS)
    assert [b.first for b in blocks] == [0, 256, 512, 768]
    assert blocks[2].provenance.rows()[87:90] == [(599, "arxiv"), (600, "book"), (601, "book")]


def test_rows_may_begin_anywhere(hub):
    chunk = registry.load_chunk("amber", chunk=355)
    block = next(chunk.rows(start=598, block=3))
    assert (block.first, block.sources) == (598, ("arxiv", "arxiv", "book"))
    assert np.array_equal(block.tokens, TOKENS[598:601])
    assert list(chunk.rows(start=ROWS)) == []
    for words in ({"start": -1}, {"block": 0}, {"start": 1.5}):
        with pytest.raises(InvalidId, match=r"amber/chunk-355: read .* expected a whole number from"):
            next(chunk.rows(**words))


def test_it_is_pinned_to_the_commit_and_names_the_sha256(hub, published):
    artifact = registry.resolve("amber", chunk=355)
    assert (artifact.location, artifact.commit) == ("hf://datasets/LLM360/AmberDatasets@main", COMMIT)
    assert [(f.path, f.sha256) for f in artifact.files] == [(PATH, hashlib.sha256(published).hexdigest())]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda text: text[:100], "JSONDecodeError"),
        (lambda text: text.replace('"source"', '"kind"'), "KeyError: 'source'"),
        (lambda text: text.replace("[", "[1, "), "another length"),
        (lambda text: re.sub(r"\[\d+", "[32000", text), "not in 0 to 31999"),
        (lambda text: re.sub(r"\[\d+", "[-1", text), "not in 0 to 31999"),
        (lambda text: re.sub(r"\[\d+", "[1.5", text), "another length or type"),
        (lambda text: "", "JSONDecodeError"),
        (lambda text: "x" * 3_000_000, "JSONDecodeError"),
    ],
)
def test_a_line_that_is_no_row_is_named(hub, spoil, why):
    hub.files[PATH] = "\n".join([line(0), line(1), spoil(line(2)), line(3)]).encode()
    rows = registry.load_chunk("amber", chunk=355).rows(block=2)
    assert len(next(rows).tokens) == 2
    with pytest.raises(IntegrityError, match=rf"AmberDatasets@main/{PATH}, line 3: read .*{why}.* expected .*2049 int"):
        next(rows)


def test_bytes_that_are_not_the_released_ones_are_named_at_the_end(hub):
    chunk = registry.load_chunk("amber", chunk=355)
    hub.files[PATH] = hub.files[PATH].replace(b"arxiv", b"arxiw")
    with pytest.raises(IntegrityError, match=rf"{PATH}: sha256 .*, expected"):
        list(chunk.rows())


def test_a_pulled_chunk_is_whole_and_read_without_the_hub(hub, monkeypatch, published):
    pulled = api.pull(ArtifactId.parse("amber/chunk-355"))
    assert pulled.files[0].bytes == len(published)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    sent = hub.sent
    chunk = registry.load_chunk("amber", chunk=355)
    assert (chunk.artifact.commit, chunk.artifact.files) == (COMMIT, pulled.files)
    assert np.array_equal(chunk.head(3).tokens, TOKENS[:3])
    assert hub.sent == sent
    shutil.rmtree(registry.store.active().cache)
    with pytest.raises(StoreUnavailable, match=r"not cached here and the Hub cannot be reached.*streamed"):
        registry.load_chunk("amber", chunk=355)


def test_what_is_not_there_says_so(hub):
    with pytest.raises(NotFound, match=r"no train/train_354\.jsonl with a sha256"):
        registry.load_chunk("amber", chunk=354)
    with pytest.raises(NotFound, match="amber/chunk-360: not in this suite"):
        registry.load_chunk("amber", chunk=360)
    with pytest.raises(NotReleased, match=r"crystal/chunk-355: the data is HDF5 files packed by source"):
        registry.load_chunk("crystal", chunk=355)
    chunk = registry.load_chunk("amber", chunk=355)
    del hub.files[PATH]
    with pytest.raises(NotFound, match=r"no train/train_355\.jsonl at commit d+"):
        chunk.head(1)
