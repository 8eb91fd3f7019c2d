from __future__ import annotations

import collections
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm360.data.documents import Document, write_documents
from llm360.data.mixture import ChunkParams, Fim, Ingredient
from llm360.data.planning.plan import check_phase, plan, plan_phase
from llm360.data.planning.refusals import require_possible, require_room, require_special, size
from llm360.data.planning.supply import Supply, counted, declared
from llm360.errors import ConfigError, DataError, StorageFull
from llm360.files import write_manifest

PARAMS = ChunkParams(
    suite="tiny",
    phase="p",
    folder="tiny",
    tokenizer="tiny",
    sequence_length=32,
    first_chunk=0,
    chunks=4,
    rows_per_chunk=25,
    validation_rows=2,
    seed=7,
    mixture={
        "arxiv": Ingredient(weight=1.0, part="all", epochs=1),
        "book": Ingredient(weight=3.0, part="all", epochs=2),
    },
)
FIM = Fim(rate=0.5, spm_rate=0.5, prefix="<|fim_prefix|>", middle="<|fim_middle|>", suffix="<|fim_suffix|>")


def supply(tokens, tolerance=0):
    return Supply(
        tokens=tokens, tolerance=tolerance, basis="estimated", note="a note", documents_bytes=0, documents=None
    )


def planned(params=PARAMS, batch_size=8, vocab_size=384, **tokens):
    supplies = {k: supply(tokens.get(k)) for k in params.mixture}
    return plan_phase(params, supplies, batch_size=batch_size, vocab_size=vocab_size)


@given(
    st.integers(1, 50),
    st.integers(1, 10**7),
    st.integers(1, 3000),
    st.integers(1, 4096),
    st.none() | st.floats(0.001, 1.0),
)
def test_what_goes_in_comes_out_or_is_named(chunks, rows, batch_size, length, last):
    last_rows = None if last is None else max(1, int(rows * last))
    params = dataclasses.replace(
        PARAMS, chunks=chunks, rows_per_chunk=rows, sequence_length=length, last_chunk_rows=last_rows
    )
    phase = planned(params, batch_size)
    assert phase.rows == (chunks - 1) * rows + (last_rows or rows)
    assert sum(phase.steps) * batch_size + sum(phase.rows_left) == phase.rows
    assert all(left < batch_size for left in phase.rows_left)
    assert phase.targets == sum(phase.steps) * batch_size * length
    assert sum(k.tokens for k in phase.kinds) == phase.tokens == phase.rows * (length + 1)


def test_without_a_batch_size_there_are_no_steps():
    phase = planned(batch_size=None)
    assert (phase.steps, phase.rows_left, phase.targets) == ((), (), None)


def test_ids_above_two_bytes_double_the_disk():
    small, large = planned(vocab_size=65_536), planned(vocab_size=65_537)
    assert large.chunk_bytes - small.chunk_bytes == pytest.approx(small.tokens * 2 / 1.97, abs=1)
    assert (small.token_bytes, large.token_bytes) == (2, 4)


def test_fill_in_the_middle_packs_a_kind_again_for_each_epoch_that_is_needed():
    fim = PARAMS.mixture | {"book": dataclasses.replace(PARAMS.mixture["book"], fim=FIM)}
    have = {"arxiv": 10_000, "book": 50_000}
    plain, changed = planned(**have), planned(dataclasses.replace(PARAMS, mixture=fim), **have)
    assert [k.packed_tokens for k in plain.kinds] == [10_000, 50_000]
    assert [k.packed_tokens for k in changed.kinds] == [10_000, 50_000]
    twice = planned(dataclasses.replace(PARAMS, mixture=fim), arxiv=10_000, book=2_000)
    assert [k.packed_tokens for k in twice.kinds] == [10_000, 4_000]


def test_an_impossible_mixture_is_refused_with_the_arithmetic():
    phase = planned(arxiv=825, book=1000)
    assert [k.short for k in phase.kinds] == [0, 475]
    message = (
        r"tiny: book must give 75 rows x 33 tokens = 2,475, but has 1,000 \(a note\) x 2 epochs = 2,000, "
        r"which is 475 too few\. Add text, allow more epochs, lower the weight or make fewer rows"
    )
    with pytest.raises(DataError, match=message):
        require_possible(phase)


def test_every_kind_that_is_short_is_named():
    with pytest.raises(DataError, match=r"arxiv must give .* too few; book must give .* too few\. Add text"):
        require_possible(planned(arxiv=1, book=1))


@pytest.mark.parametrize(("tolerance", "refused"), [(1237, True), (1238, False)])
def test_a_kind_is_refused_only_beyond_its_tolerance(tolerance, refused):
    supplies = {"arxiv": supply(825), "book": supply(0, tolerance)}  # 2,475 tokens in two epochs
    phase = plan_phase(PARAMS, supplies, batch_size=None, vocab_size=384)
    assert bool(phase.kinds[1].short) is refused


def test_what_is_not_known_is_said_and_not_refused():
    phase = planned()
    require_possible(phase)
    assert [k.epochs_needed for k in phase.kinds] == [None, None]


def all_there_is(chunks=4):
    mixture = {k: Ingredient(weight=None, part="all", epochs=e) for k, e in (("arxiv", 1), ("book", 2))}
    return dataclasses.replace(PARAMS, chunks=chunks, rows_per_chunk=None, mixture=mixture)


def test_all_there_is_makes_equal_chunks_of_whole_rows():
    phase = planned(all_there_is(), arxiv=33 * 10 + 5, book=33 * 20)  # 10 and 2 x 20 rows
    assert phase.chunk_rows == (12, 12, 12, 12)
    assert sum(k.rows for k in phase.kinds) == 48
    require_possible(phase)


def test_all_there_is_must_be_known():
    with pytest.raises(DataError, match=r"rows_per_chunk is null.*of book \(a note\) is not known; build its source"):
        planned(all_there_is(), arxiv=1000)


def test_all_there_is_must_fill_the_chunks():
    with pytest.raises(
        DataError, match="90 chunks need a row each, and the mixture gives less; kinds have arxiv 3 row"
    ):
        planned(all_there_is(chunks=90), arxiv=99, book=99)


def test_phases_are_planned_together_and_share_their_documents():
    kinds = {k: dataclasses.replace(supply(10_000), documents_bytes=500) for k in PARAMS.mixture}
    both = plan(
        {"a": PARAMS, "b": dataclasses.replace(PARAMS, chunks=8)},
        supplies={"a": kinds, "b": kinds},
        batch_sizes={"a": 8},
        vocab_sizes={"a": 384, "b": 384},
    )
    a, b = both.phases["a"], both.phases["b"]
    assert both.documents_bytes == 1000
    assert both.peak_bytes == 1000 + a.chunk_bytes + b.chunk_bytes + b.working_bytes
    assert (a.steps, b.steps) == ((3, 3, 3, 3), ())


def test_a_declared_size_is_as_good_as_its_last_digit_and_a_part_of_it_an_estimate():
    whole, half = declared(30_000_000_000, "all"), declared(30_000_000_000, "odd_files")
    assert (whole.tokens, whole.tolerance) == (30_000_000_000, 5_000_000)
    assert (half.tokens, half.tolerance) == (15_000_000_000, 1_500_000_000)
    assert declared(None, "all").tokens is None
    assert "30.00 billion declared, rounded to 0.01" in whole.note


def test_a_special_token_that_the_tokenizer_lacks_is_refused():
    mixture = {"arxiv": Ingredient(weight=1.0, part="all", epochs=1, fim=FIM)}
    params = dataclasses.replace(PARAMS, mixture=mixture)
    require_special(params, FIM.tokens)
    message = r"mixture\.arxiv\.fim names '<\|fim_prefix\|>', which tokenizer tiny lacks; did you mean '<fim_prefix>'"
    with pytest.raises(ConfigError, match=message):
        require_special(params, ["<fim_prefix>", "<|fim_middle|>", "<|fim_suffix|>"])


def test_a_disk_too_small_is_refused_and_finished_work_counts(tmp_path, monkeypatch):
    phase = planned(arxiv=10_000, book=10_000)
    usage = collections.namedtuple("usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(phase.peak_bytes - 100))
    with pytest.raises(
        StorageFull, match=r"tiny: making its chunks needs \d+\.\d\d kB \(.* of which 0 B are there.* Free"
    ):
        require_room(phase, tmp_path / "not" / "yet")
    (tmp_path / "packed").write_bytes(b"x" * 100)
    require_room(phase, tmp_path)


@pytest.mark.parametrize(("number", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (1.28e12, "1.28 TB")])
def test_sizes_have_a_unit(number, text):
    assert size(number) == text


def test_the_estimate_is_near_what_the_documents_hold(sources, tokenizer_folder, documents):
    from llm360.data.tokens.encoder import load_encoder

    encoder = load_encoder(tokenizer_folder)
    for kind, folder in sources.items():
        true = sum(len(ids) + 1 for ids in encoder.encode(documents[kind]["text"].to_list()))
        found = counted(folder, Ingredient(weight=1.0, part="all", epochs=1), PARAMS, encoder)
        held_out = PARAMS.validation_rows * PARAMS.row_tokens + true / len(documents[kind])
        assert found.tokens == pytest.approx(true - held_out, rel=0.02)
        assert found.tolerance == pytest.approx(found.tokens * 0.1 + true / len(documents[kind]), rel=0.02)
        assert found.documents == len(documents[kind])


def test_without_a_tokenizer_bytes_are_known_and_tokens_are_not(sources):
    found = counted(sources["arxiv"], Ingredient(weight=1.0, part="all", epochs=1), PARAMS, None)
    assert (found.tokens, found.basis) == (None, "unknown")
    assert "MB of text, no tokenizer yet" in found.note


def test_halves_make_the_whole(sources, tokenizer_folder):
    from llm360.data.tokens.encoder import load_encoder

    encoder = load_encoder(tokenizer_folder)
    whole, even, odd = (
        counted(sources["book"], Ingredient(weight=1.0, part=part, epochs=1), PARAMS, encoder)
        for part in ("all", "even", "odd")
    )
    assert even.documents + odd.documents == whole.documents
    assert even.tokens + odd.tokens == pytest.approx(whole.tokens, abs=2)


def test_a_part_that_leaves_nothing_is_refused(tmp_path):
    document = Document(id="a", kind="book", source="s", origin="o", licence="l", text="words")
    write_manifest(tmp_path, {"parts": write_documents(tmp_path, [document])})
    with pytest.raises(DataError, match="part odd_files leaves none of 1 documents from 1 input files; choose another"):
        counted(tmp_path, Ingredient(weight=1.0, part="odd_files", epochs=1), PARAMS, None)


def check(sources, tokenizer_folder, work, params=PARAMS):
    root = next(iter(sources.values())).parent
    return check_phase(params, sources=root, tokenizer=tokenizer_folder, batch_size=8, work=work)


def test_a_phase_is_said_before_it_is_made(sources, tokenizer_folder, tmp_path, capsys):
    phase = check(sources, tokenizer_folder, tmp_path)
    said = capsys.readouterr().err
    assert "tiny: 4 chunks, 100 rows, 3,300 tokens, 12 steps of 8" in said
    assert "tiny: rows arxiv 25 (" in said
    assert [k.rows for k in phase.kinds] == [25, 75]


def test_a_phase_that_cannot_be_is_refused_before_it_is_made(sources, tokenizer_folder, tmp_path):
    with pytest.raises(DataError, match=r"arxiv must give .* MB of text at \d\.\d\d bytes a token, estimated"):
        check(sources, tokenizer_folder, tmp_path, dataclasses.replace(PARAMS, chunks=4000))
    fim = dataclasses.replace(FIM, prefix="<|fim_prefx|>")
    mixture = {"arxiv": Ingredient(weight=1.0, part="all", epochs=1, fim=fim)}
    with pytest.raises(ConfigError, match=r"fim_prefx.*did you mean"):
        check(sources, tokenizer_folder, tmp_path, dataclasses.replace(PARAMS, mixture=mixture))
    assert not list(tmp_path.iterdir())


def test_the_plan_is_what_the_chunks_turn_out_to_be(sources, tokenizer_folder, make_chunks, tmp_path):
    phase = check(sources, tokenizer_folder, tmp_path)
    kinds = make_chunks(tmp_path / "chunks", PARAMS).manifest["kinds"]
    assert {k.kind: k.rows for k in phase.kinds} == {k: c["rows"] for k, c in kinds.items()}
    for kind in phase.kinds:
        tokens = kinds[kind.kind]["rows_available"] * PARAMS.row_tokens
        assert abs(tokens - kind.supply.tokens) < kind.supply.tolerance
