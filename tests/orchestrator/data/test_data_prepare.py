"""Text to token shards: what goes in comes out, in the right split, and every mistake is one clear line."""

import errno
import gzip
import json
import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from scalewright.orchestrator.data import manifest, sources, tokenizers
from scalewright.orchestrator.data import prepare as preparing
from scalewright.orchestrator.data.prepare import prepare
from scalewright.orchestrator.data.shards import HEADER_BYTES, ShardWriter, open_shard
from scalewright.orchestrator.errors import UserError

DOCUMENTS = [f"Document {number}.\n\nCall me Ishmael, {number * 7919 % 1000} times: été.\n" for number in range(200)]


def write_jsonl(path: Path, documents: list[str]) -> Path:
    lines = [json.dumps({"text": text, "title": "a"}) for text in documents]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "corpus.jsonl", DOCUMENTS)


def tokens_of(made: manifest.Manifest, folder: Path, split: str) -> np.ndarray:
    return np.concatenate(manifest.open_split(made, folder, split))


def texts_of(made: manifest.Manifest, folder: Path, split: str) -> list[str]:
    """Cut the bytes at the end-of-document byte."""
    return tokens_of(made, folder, split).astype(np.uint8).tobytes().decode().split("\0")[:-1]


def test_every_document_is_in_exactly_one_split_whole_and_in_order(corpus: Path, tmp_path: Path) -> None:
    made = prepare([corpus], "bytes", tmp_path / "data", validation_fraction=0.2)
    train, validation = (texts_of(made, tmp_path / "data", name) for name in ("train", "validation"))
    assert sorted(train + validation) == sorted(DOCUMENTS)
    assert [text for text in DOCUMENTS if text in set(train)] == train
    assert 20 <= len(validation) <= 60  # 40 expected of 200, standard deviation 5.7
    assert (made.train.n_documents, made.validation.n_documents) == (len(train), len(validation))
    assert made.validation.n_bytes == sum(len(text.encode()) + 1 for text in validation) == made.validation.n_tokens


def test_a_document_stays_in_its_split_whatever_comes_with_it(corpus: Path, tmp_path: Path) -> None:
    all_of_them = prepare([corpus], "bytes", tmp_path / "a", validation_fraction=0.3)
    half = write_jsonl(tmp_path / "half.jsonl", DOCUMENTS[::-2])
    some = prepare([half], "bytes", tmp_path / "b", validation_fraction=0.3)
    assert set(texts_of(some, tmp_path / "b", "validation")) <= set(texts_of(all_of_them, tmp_path / "a", "validation"))


def test_shards_of_any_size_hold_the_same_tokens(corpus: Path, tmp_path: Path) -> None:
    whole = prepare([corpus], "bytes", tmp_path / "a")
    cut = prepare([corpus], "bytes", tmp_path / "b", shard_tokens=1000)
    assert len(cut.train.shards) > 5
    assert (tokens_of(whole, tmp_path / "a", "train") == tokens_of(cut, tmp_path / "b", "train")).all()
    assert whole.fingerprint != cut.fingerprint  # windows do not reach over a shard's end, so a run would differ


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress], ids=["gz", "xz"])
def test_compressed_sources_are_the_same_data(corpus: Path, tmp_path: Path, compress, request) -> None:
    packed = tmp_path / f"corpus.jsonl.{request.node.callspec.id}"
    packed.write_bytes(compress(corpus.read_bytes()))
    first, second = (prepare([source], "bytes", tmp_path / source.name[-2:]) for source in (packed, corpus))
    assert first.fingerprint == second.fingerprint


def test_the_fingerprint_changes_with_the_text_and_with_the_tokenizer(corpus: Path, tmp_path: Path) -> None:
    names = ("bytes", "bpe:300", "bpe:301")
    prints = {prepare([corpus], name, tmp_path / "data").fingerprint for name in names}
    write_jsonl(corpus, [*DOCUMENTS[:-1], DOCUMENTS[-1] + "!"])
    prints.add(prepare([corpus], "bytes", tmp_path / "data").fingerprint)
    assert len(prints) == 4


def test_asked_again_it_reads_the_manifest_only(corpus: Path, tmp_path: Path, monkeypatch) -> None:
    made = prepare([corpus], "bytes", tmp_path / "data")
    monkeypatch.setattr(preparing, "make", None)
    assert prepare([corpus], "bytes", tmp_path / "data") == made == manifest.read(tmp_path / "data")


def test_a_damaged_shard_is_made_again(corpus: Path, tmp_path: Path) -> None:
    made = prepare([corpus], "bytes", tmp_path / "data")
    shard = tmp_path / "data" / made.train.shards[0].file
    before = shard.read_bytes()
    shard.write_bytes(before[:-1])
    prepare([corpus], "bytes", tmp_path / "data")
    assert shard.read_bytes() == before


def test_new_data_replaces_the_old_and_leaves_nothing_else(corpus: Path, tmp_path: Path) -> None:
    prepare([corpus], "bpe:300", tmp_path / "data")
    made = prepare([corpus], "bytes", tmp_path / "data")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == sorted([made.fingerprint, "manifest.json"])


def test_a_failed_prepare_leaves_the_old_data(corpus: Path, tmp_path: Path) -> None:
    made = prepare([corpus], "bytes", tmp_path / "data")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "fine"}\nnot json\n')
    with pytest.raises(UserError):
        prepare([bad], "bytes", tmp_path / "data")
    assert manifest.read(tmp_path / "data") == made
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == sorted([made.fingerprint, "manifest.json"])


def test_plain_text_is_cut_at_paragraph_ends_and_loses_nothing(tmp_path: Path) -> None:
    text = "".join(f"Paragraph {number} " + "word " * 300 + "\n\n" for number in range(40))
    (tmp_path / "book.txt").write_text(text)
    pieces = list(sources.read_documents(tmp_path / "book.txt"))
    assert "".join(pieces) == text
    assert all(piece.startswith("Paragraph") and piece.endswith("\n\n") for piece in pieces)
    assert len(pieces) > 4


def test_text_of_single_newlines_is_cut_at_line_ends_and_loses_nothing(tmp_path: Path) -> None:
    lines = [f"Line {number} " + "word " * 20 + "\n" for number in range(1000)]
    (tmp_path / "lines.txt").write_text("".join(lines))
    pieces = list(sources.read_documents(tmp_path / "lines.txt"))
    assert "".join(pieces) == "".join(lines)
    assert all(piece.startswith("Line ") and piece.endswith("\n") for piece in pieces)
    assert {len(piece) // sources.TEXT_DOCUMENT_CHARACTERS for piece in pieces[:-1]} == {1}


def test_one_blank_line_does_not_make_a_text_of_single_newlines_one_document(tmp_path: Path) -> None:
    text = "Title\n\n" + "a line without a paragraph\n" * 100_000
    (tmp_path / "lines.txt").write_text(text)
    pieces = list(sources.read_documents(tmp_path / "lines.txt"))
    assert "".join(pieces) == text
    assert all(piece.endswith("\n") for piece in pieces)
    assert max(map(len, pieces)) < 2 * sources.LONGEST_LINE < len(text)


def test_one_long_line_is_cut_in_parts_and_keeps_its_characters(tmp_path: Path) -> None:
    text = "aé" * 2**20  # 3 MiB; a part ends in the middle of a character
    (tmp_path / "line.txt").write_text(text)
    pieces = list(sources.read_documents(tmp_path / "line.txt"))
    assert "".join(pieces) == text and len(pieces) == 3
    (tmp_path / "line.txt").write_bytes(text.encode()[:-1])
    with pytest.raises(UserError, match=r"line.txt:1: not UTF-8 text \(unexpected end of data"):
        list(sources.read_documents(tmp_path / "line.txt"))


def test_a_folder_is_read_with_its_sub_folders_and_says_what_it_skips(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    for name in ("b/deep/one.TXT", "a.md", "._a.txt", ".git/x.txt", "c.csv", "d.PDF", "e.pdf", "README"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\x00\xff" if name.startswith(".") else b"some text\n")
    (folder / "z.json.gz").write_bytes(gzip.compress(b'{"text": "one"}\n{"text": "two"}\n'))
    (folder / "y.json").write_text('[{"text": "three"},\n {"text": "four"}]')
    found = sources.find_sources([folder])
    assert [str(file.relative_to(folder)) for file in found] == ["a.md", "b/deep/one.TXT", "y.json", "z.json.gz"]
    texts = [text for file in found for text in sources.read_documents(file)]
    assert texts == ["some text\n", "some text\n", "three", "four", "one", "two"]
    assert sources.what_was_skipped([folder, found[0]]) == [
        f"{folder}: 4 files read; skipped: 1 .csv, 2 .pdf, 1 no suffix"
    ]


def test_a_byte_order_mark_before_json_lines_is_no_content(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.json"):
        (tmp_path / name).write_bytes(b'\xef\xbb\xbf{"text": "one"}\n{"text": "two"}\n')
        assert list(sources.read_documents(tmp_path / name)) == ["one", "two"]


def test_the_key_of_the_text_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": 3, "body": "{text}"}}\n' for text in "abcdefgh"))
    made = prepare([tmp_path / "a.jsonl"], "bytes", tmp_path / "data", validation_fraction=0.3, text_field="body")
    assert made.train.n_bytes + made.validation.n_bytes == 16


def test_a_small_text_file_still_gets_a_validation_split(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(("word " * 2000 + "\n\n") * 3)
    (tmp_path / "other.txt").write_text("a word\n")
    made = prepare([tmp_path], "bytes", tmp_path / "data", validation_fraction=1e-9)
    assert made.validation.n_documents >= 1
    assert made.train.n_documents >= 1


def test_a_trained_bpe_gives_the_text_back_and_has_the_size_asked_for(corpus: Path, tmp_path: Path) -> None:
    made = prepare([corpus], "bpe:320", tmp_path / "data", validation_fraction=0.2)
    tokenizer = tokenizers.load_tokenizer(made.tokenizer, made.folder(tmp_path / "data"))
    assert made.vocab_size == tokenizer.vocab_size == 320
    tokens = tokens_of(made, tmp_path / "data", "validation")
    ends = np.flatnonzero(tokens == tokenizer.end_id)
    texts = [tokenizer.decode(piece[piece != tokenizer.end_id]) for piece in np.split(tokens, ends + 1)[:-1]]
    assert len(ends) == made.validation.n_documents
    assert set(texts) < set(DOCUMENTS)
    assert made.bytes_per_token == sum(len(text.encode()) + 1 for text in texts) / len(tokens) > 1.5


def test_training_a_bpe_twice_gives_the_same_tokenizer(corpus: Path, tmp_path: Path) -> None:
    first, second = (prepare([corpus], "bpe:400", tmp_path / name).tokenizer_hash for name in "ab")
    assert first == second


def test_a_tokenizer_file_of_the_users_is_the_same_tokenizer(corpus: Path, tmp_path: Path) -> None:
    trained = prepare([corpus], "bpe:300", tmp_path / "a")
    file = trained.folder(tmp_path / "a") / "tokenizer.json"
    used = prepare([corpus], str(file), tmp_path / "b")
    assert used.tokenizer_hash == trained.tokenizer_hash
    assert (tokens_of(used, tmp_path / "b", "train") == tokens_of(trained, tmp_path / "a", "train")).all()


def changed(file: Path, made: manifest.Manifest, folder: Path, **changes) -> Path:
    """Copy a made tokenizer with some of its settings changed."""
    record = json.loads((made.folder(folder) / "tokenizer.json").read_text())
    model = record["model"] | changes.pop("model", {})
    file.write_text(json.dumps(record | changes | {"model": model}))
    return file


TRUNCATION = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
PADDING = {
    "strategy": {"Fixed": 64},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "<|endoftext|>",
}


@pytest.mark.parametrize(
    "settings", [{"truncation": TRUNCATION}, {"padding": PADDING}, {"model": {"dropout": 0.5}}], ids=str
)
def test_what_a_tokenizer_file_asks_for_besides_its_vocabulary_is_off(corpus: Path, tmp_path: Path, settings) -> None:
    trained = prepare([corpus], "bpe:300", tmp_path / "a")
    file = changed(tmp_path / "t.json", trained, tmp_path / "a", **settings)
    used = prepare([corpus], str(file), tmp_path / "b")
    assert (tokens_of(used, tmp_path / "b", "train") == tokens_of(trained, tmp_path / "a", "train")).all()
    assert (used.tokenizer_hash, used.fingerprint) == (trained.tokenizer_hash, trained.fingerprint)


def test_a_vocabulary_with_a_hole_is_as_large_as_its_largest_id(corpus: Path, tmp_path: Path) -> None:
    trained = prepare([corpus], "bpe:300", tmp_path / "a")
    record = json.loads((trained.folder(tmp_path / "a") / "tokenizer.json").read_text())
    vocab = {token: 5000 if index == 299 else index for token, index in record["model"]["vocab"].items()}
    file = changed(tmp_path / "t.json", trained, tmp_path / "a", model={"vocab": vocab})
    made = prepare([corpus], str(file), tmp_path / "b")
    assert made.vocab_size == 5001 > tokens_of(made, tmp_path / "b", "train").max()


def test_a_tokenizer_that_does_not_give_the_text_back_is_refused_unless_meant(corpus: Path, tmp_path: Path) -> None:
    trained = prepare([corpus], "bpe:300", tmp_path / "a")
    file = changed(tmp_path / "t.json", trained, tmp_path / "a", normalizer={"type": "Lowercase"})
    with pytest.raises(UserError, match=r"do not decode to the text \(character 1: 'Docu.*lossy_tokenizer: true$"):
        prepare([corpus], str(file), tmp_path / "b")
    made = prepare([corpus], str(file), tmp_path / "b", lossy_tokenizer=True)
    assert made.train.n_bytes == trained.train.n_bytes
    with pytest.raises(UserError, match="do not decode"):  # not what was made when it was meant
        prepare([corpus], str(file), tmp_path / "b")


def test_the_fingerprint_covers_the_ids(corpus: Path, tmp_path: Path, monkeypatch) -> None:
    trained = prepare([corpus], "bpe:300", tmp_path / "a")
    encode = tokenizers.FileTokenizer.encode
    monkeypatch.setattr(tokenizers.FileTokenizer, "encode", lambda *of: [ids[::-1] for ids in encode(*of)])
    other = prepare([corpus], "bpe:300", tmp_path / "b", lossy_tokenizer=True)
    assert other.fingerprint != trained.fingerprint


def test_ids_above_65535_take_four_bytes(tmp_path: Path) -> None:
    ids = np.array([0, 65535, 65536, 2**31])
    for vocab_size, width in ((2**16, 2), (2**16 + 1, 4)):
        dtype = preparing.token_dtype(vocab_size)
        assert dtype.itemsize == width
    with ShardWriter(tmp_path, "wide", "0" * 16, dtype, 100) as writer:
        writer.append(ids)
    path = tmp_path / writer.shards[0].file
    assert (open_shard(path, tokenizer_hash="0" * 16, n_tokens=4) == ids).all()
    assert path.stat().st_size == HEADER_BYTES + 16


def test_the_embedded_corpus_has_its_documents() -> None:
    assert sum(1 for _ in sources.read_documents(sources.default_corpus())) == 1413


MISTAKES = {
    "line": ('{"text": "a"}\n{"text": \n', "corpus.jsonl:2: not a JSON object"),
    "list": ('["a"]\n', "corpus.jsonl:1: expected a JSON object, found list"),
    "field": ('{"title": "a", "body": "b"}\n', "corpus.jsonl:1: no text under 'text'; it has 'title', 'body' (name"),
    "null": ('{"text": null, "title": "a"}\n', "corpus.jsonl:1: 'text' is null, not text"),
    "number": ('\n{"text": 3}\n', "corpus.jsonl:2: 'text' is a number, not text"),
    "empty": ("\n", "the training split is empty (0 documents in all)"),
}


@pytest.mark.parametrize(("content", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_json_file_names_file_and_line(corpus: Path, tmp_path: Path, content: str, message: str) -> None:
    corpus.write_text(content)
    with pytest.raises(UserError) as raised:
        prepare([corpus], "bytes", tmp_path / "data")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_text_that_is_not_utf8_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("fine\nété\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"latin.txt:2: not UTF-8 text"):
        prepare([tmp_path / "latin.txt"], "bytes", tmp_path / "data")


def test_a_compressed_file_cut_short_is_said_to_be(corpus: Path, tmp_path: Path) -> None:
    packed = tmp_path / "corpus.jsonl.xz"
    packed.write_bytes(lzma.compress(corpus.read_bytes())[:-20])
    with pytest.raises(UserError, match="corpus.jsonl.xz: damaged or cut short"):
        prepare([packed], "bytes", tmp_path / "data")


@pytest.mark.parametrize(
    ("source", "message"),
    [("nowhere.jsonl", "nowhere.jsonl: no such file or folder"), ("a.csv", "a.csv: unknown kind of file '.csv'")],
)
def test_a_source_that_cannot_be_read_says_what_could(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(UserError, match=message):
        prepare([tmp_path / source], "bytes", tmp_path / "data")


@pytest.mark.parametrize("tokenizer", ["byte", "bpe:many", "bpe:100", "bpe:", "missing/tokenizer.json"])
def test_an_unknown_tokenizer_is_refused_with_what_is_expected(corpus: Path, tmp_path: Path, tokenizer: str) -> None:
    with pytest.raises(UserError, match="expected .*bpe:SIZE"):
        prepare([corpus], tokenizer, tmp_path / "data")


def test_a_file_that_is_no_tokenizer_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"corpus.jsonl: not a tokenizer file"):
        prepare([corpus], str(corpus), tmp_path / "data")


def test_a_shard_of_another_tokenizer_is_refused(corpus: Path, tmp_path: Path) -> None:
    bytes_made = prepare([corpus], "bytes", tmp_path / "a")
    bpe_made = prepare([corpus], "bpe:300", tmp_path / "b")
    shard, other = bytes_made.train.shards[0], bpe_made.train.shards[0]
    (tmp_path / "a" / shard.file).write_bytes((tmp_path / "b" / other.file).read_bytes())
    with pytest.raises(UserError, match=f"{bpe_made.tokenizer_hash}, expected {bytes_made.tokenizer_hash}"):
        manifest.open_split(bytes_made, tmp_path / "a", "train")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"short", "not a token shard"), (b"x" * 100, "not a token shard"), (None, "shard is missing")],
)
def test_a_shard_that_is_none_is_refused(corpus: Path, tmp_path: Path, content: bytes | None, message: str) -> None:
    made = prepare([corpus], "bytes", tmp_path / "data")
    shard = tmp_path / "data" / made.train.shards[0].file
    shard.unlink() if content is None else shard.write_bytes(content)
    with pytest.raises(UserError, match=message):
        manifest.open_split(made, tmp_path / "data", "train")


@pytest.mark.parametrize("content", ["{", '{"format": 99}', "[]"])
def test_a_manifest_that_cannot_be_read_says_to_prepare_again(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UserError, match="prepare the data again"):
        manifest.read(tmp_path)


def test_a_folder_without_data_says_how_to_make_some(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="scalewright data prepare"):
        manifest.read(tmp_path)


def test_no_space_left_is_one_line_and_leaves_nothing(corpus: Path, tmp_path: Path, monkeypatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="no space left"):
        prepare([corpus], "bytes", tmp_path / "data")
    assert not list((tmp_path / "data").iterdir())


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0])
def test_a_validation_fraction_must_leave_both_splits(corpus: Path, tmp_path: Path, fraction: float) -> None:
    with pytest.raises(UserError, match="validation fraction"):
        prepare([corpus], "bytes", tmp_path / "data", validation_fraction=fraction)
