from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from llm360.data.tokens.encoder import load_encoder
from llm360.files import verify
from stages import tokenizer as stage

PARAMS = {"kinds": ["c4", "book", "arxiv"], "vocab_size": 400, "sample_mb": 0.1, "reserved": 1}
PARAMS |= {"extra_tokens": ["<|fim_prefix|>"]}


@pytest.fixture
def project(sources, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind, folder in sources.items():
        shutil.copytree(folder, f"artifacts/sources/{kind}")
    write_params(PARAMS, sources=sources)
    return tmp_path


def write_params(tokenizer, *, sources):
    params = {"sources": {kind: {} for kind in sources}, "tokenizers": {"tiny": tokenizer}}
    Path("params.yaml").write_text(yaml.safe_dump(params))


def test_a_tokenizer_is_trained_proven_and_named_by_its_manifest(project, documents):
    assert stage.main(["--suite", "tiny"]) == 0
    folder = project / "artifacts/tokenizers/tiny"
    manifest = verify(folder)
    assert {"tokenizer.json", "tokenizer_config.json", "encoder.json"} <= {e["path"] for e in manifest["files"]}
    assert manifest["ids"] == 402
    assert json.loads((folder / "encoder.json").read_text())["texts"] == sum(map(len, documents.values()))
    assert load_encoder(folder).name.startswith("tiktoken ")


def test_the_same_documents_give_the_same_bytes(project):
    made = []
    for _ in range(2):
        stage.main(["--suite", "tiny"])
        made.append((project / "artifacts/tokenizers/tiny/manifest.json").read_bytes())
    assert made[0] == made[1]


def test_neither_the_order_of_kinds_nor_a_kind_that_is_not_named_shows_in_the_bytes(project):
    made = []
    for kinds in (["arxiv", "book"], ["book", "arxiv"]):
        write_params({**PARAMS, "kinds": kinds}, sources=["c4", "book", "arxiv"])
        stage.main(["--suite", "tiny"])
        made.append((project / "artifacts/tokenizers/tiny/manifest.json").read_bytes())
    shutil.rmtree("artifacts/sources/c4")
    write_params({**PARAMS, "kinds": kinds}, sources=["book", "arxiv"])
    stage.main(["--suite", "tiny"])
    assert made == [(project / "artifacts/tokenizers/tiny/manifest.json").read_bytes()] * 2


def test_a_kind_that_sources_lacks_is_refused(project, capsys):
    write_params({**PARAMS, "kinds": ["boook"]}, sources=["book"])
    with pytest.raises(SystemExit):
        stage.main(["--suite", "tiny"])
    said = capsys.readouterr().err
    assert "params.yaml: tokenizers.tiny.kinds: 'boook' is not in sources; did you mean 'book'" in said


def test_altered_documents_are_refused_and_nothing_is_left(project, capsys):
    (part, *_) = sorted((project / "artifacts/sources/book/documents").iterdir())
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(SystemExit):
        stage.main(["--suite", "tiny"])
    assert "the file is altered: pull it again" in capsys.readouterr().err
    assert not (project / "artifacts/tokenizers/tiny").exists()
