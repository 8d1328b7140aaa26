"""The header reader: what it says agrees with llama.cpp, and no file does it harm."""

import ctypes
import io
import os
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import WriteModel
from foreign_files import write_parts
from scripts.support.tiny_gguf import ARCHITECTURES, Vocabulary, truncate, write_model
from specchat.errors import ModelNotFound, ModelWontLoad
from specchat.gguf.draft_kinds import is_head_only
from specchat.gguf.header import LongArray
from specchat.gguf.model_files import read_whole_model
from specchat.gguf.reader import read_beginning, read_header
from specchat.gguf.tensor_types import STORED_TYPES
from specchat.llama.library import api
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions
from tables import table

TEXT, ARRAY, UINT8, UINT32 = 8, 9, 0, 4


def text(value: bytes) -> bytes:
    """A text as GGUF stores it."""
    return struct.pack("<Q", len(value)) + value


def pair(key: bytes, kind: int, value: bytes) -> bytes:
    """A key and its value."""
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: bytes, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    """The description of a tensor."""
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


def header_of(*pairs: bytes, tensors: tuple[bytes, ...] = (), version: int = 3) -> bytes:
    """A header by hand."""
    counts = struct.pack("<IQQ", version, len(tensors), len(pairs))
    return b"GGUF" + counts + b"".join(pairs) + b"".join(tensors)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    """Return a writer of files with this content."""

    def write_bytes(data: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        return path

    return write_bytes


def named(model: Model, key: str) -> str:
    """A text of the metadata, by llama.cpp's own reader."""
    buffer = ctypes.create_string_buffer(4096)
    api.llama_model_meta_val_str(model.handle, key.encode(), buffer, len(buffer))
    return buffer.value.decode()


@table("architecture", ARCHITECTURES)
def test_what_the_header_says_agrees_with_llama_cpp(tiny: WriteModel, architecture: str) -> None:
    """Sizes, names and the template are those of the loaded model."""
    path = tiny(architecture, quantisation="q8_0")
    header = read_header(path)

    with Model(path, ModelOptions(gpu_layers=0)) as model:
        assert header.architecture == named(model, "general.architecture") == architecture
        assert header.name == named(model, "general.name")
        assert header.num_bytes == api.llama_model_size(model.handle)
        assert header.training_context == api.llama_model_n_ctx_train(model.handle)
        assert header.chat_template == named(model, "tokenizer.chat_template")
        assert header.num_layers == 4
        assert header.file_bytes == path.stat().st_size
        assert header.quantisation == "Q8_0"


def test_tensors_are_those_the_reference_reader_sees(tiny: WriteModel) -> None:
    """Names, shapes, types and sizes of every tensor agree."""
    path = tiny("qwen3moe", quantisation="q4_0")
    reference = gguf.GGUFReader(path).tensors

    header = read_header(path)

    assert [
        (each.name, each.shape, each.stored, each.num_bytes, each.num_values)
        for each in header.tensors.values()
    ] == [
        (each.name, tuple(each.shape), each.tensor_type, each.n_bytes, each.n_elements)
        for each in reference
    ]
    assert list(header.tensors) == [each.name for each in reference]


def test_every_stored_type_has_the_size_ggml_gives_it() -> None:
    """The table agrees with the reference wherever that knows the type.

    But for q8_1, which is in no file and whose scales the reference takes for twice as wide.
    """
    for kind, sizes in gguf.GGML_QUANT_SIZES.items():
        if int(kind) in STORED_TYPES and kind != gguf.GGMLQuantizationType.Q8_1:
            assert STORED_TYPES[int(kind)][1:3] == sizes


@pytest.mark.slow
def test_a_large_vocabulary_stays_in_the_file(tmp_path: Path) -> None:
    """Only the position of 150 000 tokens is kept."""
    path = write_model(tmp_path / "big.gguf", "llama", vocabulary=150_000, num_layers=1, width=32)
    header = read_header(path)

    tokens = header.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, LongArray)
    assert (tokens.kind, tokens.length) == ("texts", 150_000)
    types = header.metadata["tokenizer.ggml.token_type"]
    assert isinstance(types, LongArray)
    assert (types.kind, types.length) == ("int32", 150_000)


def test_the_values_of_every_kind_are_read(tmp_path: Path) -> None:
    """Numbers of all widths, flags, texts and short arrays come out as they went in."""
    writer = gguf.GGUFWriter(tmp_path / "kinds.gguf", "none")
    writer.add_uint8("a", 255)
    writer.add_int8("b", -128)
    writer.add_uint16("c", 65535)
    writer.add_int16("d", -32768)
    writer.add_uint32("e", 2**32 - 1)
    writer.add_int32("f", -(2**31))
    writer.add_uint64("g", 2**64 - 1)
    writer.add_int64("h", -(2**63))
    writer.add_float32("i", 0.5)
    writer.add_float64("j", 1e300)
    writer.add_bool("k", True)
    writer.add_string("l", "naïve 🦙")
    writer.add_array("m", [1, 2, 3])
    writer.add_array("n", ["x", "y"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    values = dict(read_header(tmp_path / "kinds.gguf").metadata)

    values.pop("general.architecture")
    assert list(values.values()) == [
        *(255, -128, 65535, -32768, 2**32 - 1, -(2**31), 2**64 - 1, -(2**63)),
        *(0.5, 1e300, True, "naïve 🦙", (1, 2, 3), ("x", "y")),
    ]


def test_values_of_the_wrong_kind_count_as_missing(write: Callable[[bytes], Path]) -> None:
    """A string or a flag in the place of a number does not count."""
    header = read_header(
        write(
            header_of(
                pair(b"general.architecture", TEXT, text(b"x")),
                pair(b"general.name", UINT32, struct.pack("<I", 7)),
                pair(b"x.block_count", TEXT, text(b"many")),
                pair(b"x.context_length", 7, b"\x01"),
            )
        )
    )

    assert (header.num_layers, header.training_context, header.name) == (0, 0, "model")
    assert (header.quantisation, header.chat_template) == ("unknown", None)


def test_a_text_without_measure_stays_in_the_file(write: Callable[[bytes], Path]) -> None:
    """Two MiB of chat template are skipped, and what follows is read."""
    long, last = text(b"x" * 2**21), pair(b"last", UINT32, struct.pack("<I", 7))
    header = read_header(write(header_of(pair(b"long", TEXT, long), last)))

    assert header.metadata["long"] == LongArray("text", 2**21, 24 + len(text(b"long")) + 4 + 8)
    assert header.metadata["last"] == 7


def test_many_arrays_are_kept_up_to_a_limit_of_them_all(write: Callable[[bytes], Path]) -> None:
    """A hundred arrays of 4096 numbers and more of texts: what is too much stays in the file."""
    numbers = struct.pack("<IQ4096h", 3, 4096, *range(4096))
    texts = struct.pack("<IQ", TEXT, 64) + 64 * text(b"ab")
    arrays = [pair(b"n%d" % each, ARRAY, numbers) for each in range(100)]
    arrays += [pair(b"t%d" % each, ARRAY, texts) for each in range(100)]
    metadata = read_header(write(header_of(*arrays))).metadata

    kept = [value for value in metadata.values() if isinstance(value, tuple)]
    assert len(metadata) == 200
    assert sum(map(len, kept)) == 2**17
    assert metadata["n31"] == tuple(range(4096))
    assert isinstance(metadata["n32"], LongArray)
    assert metadata["n32"].kind == "int16"
    assert isinstance(metadata["t0"], LongArray)


def test_a_beginning_without_end_is_not_read_for_a_list(tmp_path: Path) -> None:
    """A large vocabulary is not read at all, and 20 MB of other metadata is too much."""
    words = pair(b"tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", TEXT, 2**60))
    named = pair(b"general.name", TEXT, text(b"x"))
    path = tmp_path / "model.gguf"
    path.write_bytes(header_of(named, words))
    assert read_beginning(path).metadata == {"general.name": "x"}

    path.write_bytes(header_of(named, pair(b"a", ARRAY, struct.pack("<IQ", UINT8, 20_000_000))))
    os.truncate(path, 2**25)
    with pytest.raises(ModelWontLoad, match="16 MiB"):
        read_beginning(path)
    assert len(read_header(path).metadata) == 2


BAD_HEADERS = {
    "an old version": (header_of(version=1), "GGUF version 1 file, which llama.cpp"),
    "a newer version": (header_of(version=4), "GGUF version 4 file: update specchat"),
    "no version at all": (
        header_of(version=12345678),
        "damaged .unsupported GGUF version 12345678",
    ),
    "another byte order": (header_of(version=3 << 24), "for big-endian machines"),
    "no counts": (b"GGUF\x03\0\0\0", "ends within"),
    "keys without end": (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), "keys"),
    "tensors without end": (b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0), "tensors"),
    "a key without end": (header_of(struct.pack("<Q", 2**62)), "bytes in a key"),
    "a text without end": (header_of(pair(b"a", TEXT, struct.pack("<Q", 2**63))), "MiB"),
    "texts without end": (header_of(pair(b"a", ARRAY, struct.pack("<IQ", 8, 2**60))), "strings"),
    "numbers without end": (header_of(pair(b"a", ARRAY, struct.pack("<IQ", 10, 2**61))), "MiB"),
    "a text in an array without end": (
        header_of(pair(b"a", ARRAY, struct.pack("<IQ", 8, 100) + struct.pack("<Q", 2**64 - 1))),
        "ends within|MiB",
    ),
    "an array in an array": (
        header_of(pair(b"a", ARRAY, struct.pack("<IQ", ARRAY, 1))),
        "unknown value type 9",
    ),
    "an unknown type": (header_of(pair(b"a", 99, b"")), "unknown value type 99"),
    "a key twice": (header_of(pair(b"a", UINT8, b"\1"), pair(b"a", UINT8, b"\2")), "duplicate key"),
    "a tensor twice": (
        header_of(tensors=(tensor(b"t", (32,)), tensor(b"t", (32,), offset=128))),
        "duplicate tensor",
    ),
    "five dimensions": (header_of(tensors=(tensor(b"t", (1,) * 5),)), "dimensions: 5"),
    "a tensor of nothing": (header_of(tensors=(tensor(b"t", (0, 4)),)), "shape"),
    "a tensor of everything": (header_of(tensors=(tensor(b"t", (2**40, 2**40)),)), "shape"),
    "half a block": (header_of(tensors=(tensor(b"t", (33,), kind=2),)), "block size"),
    "a removed type": (header_of(tensors=(tensor(b"t", (32,), kind=4),)), "unknown type 4"),
    "an odd offset": (header_of(tensors=(tensor(b"t", (32,), offset=7),)), "aligned"),
    "a long name": (header_of(tensors=(tensor(b"t" * 64, (32,)),)), "tensor's name"),
    "no data": (header_of(tensors=(tensor(b"t", (32,)),)), "needs 192 bytes, has 57"),
    "no alignment": (
        header_of(pair(b"general.alignment", UINT32, struct.pack("<I", 0))),
        "alignment",
    ),
}


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_a_bad_header_is_refused_in_one_line(write: Callable[[bytes], Path], case: str) -> None:
    """The file is reported as damaged, with the fault and what to do."""
    data, reason = BAD_HEADERS[case]

    with pytest.raises(ModelWontLoad, match=reason) as caught:
        read_header(write(data))

    assert "\n" not in str(caught.value)
    assert "model.gguf" in str(caught.value)


def test_escape_sequences_in_names_never_reach_a_message(write: Callable[[bytes], Path]) -> None:
    """A tensor's name is shown in ASCII."""
    with pytest.raises(ModelWontLoad) as caught:
        read_header(write(header_of(tensors=(tensor(b"\x1b[2J\n", (0,)),))))

    assert str(caught.value).isprintable()


def test_a_huge_sparse_header_ends_at_the_limit(tmp_path: Path) -> None:
    """8 GiB of zeros are refused without reading them all."""
    path = tmp_path / "sparse.gguf"
    path.write_bytes(header_of(pair(b"a", ARRAY, struct.pack("<IQ", 10, 2**30 - 1))))
    os.truncate(path, 2**33)

    with pytest.raises(ModelWontLoad, match="64 MiB"):
        read_header(path)


def test_a_text_that_is_shown_holds_no_escape_codes(write: Callable[[bytes], Path]) -> None:
    """One with control characters, or marks that turn text around, counts as no text."""
    for content, reason in (
        ("Nicht gefunden: Schlüssel".encode(), "'Nicht gefunden: Schlüssel'"),
        ("Schl\u202essel".encode(), "is not a GGUF file"),
        (b"\x1b]0;title\x07 hello", "is not a GGUF file"),
    ):
        with pytest.raises(ModelWontLoad, match=reason):
            read_header(write(content))


def test_a_folder_is_described_by_what_is_in_it(tmp_path: Path) -> None:
    """With a GGUF file, with a model in another format, with neither."""
    for name, reason in (
        ("notes.txt", "is a folder without a .gguf file"),
        ("model.safetensors", "is a folder with a model in another format"),
        ("model.gguf", "is a folder: name a .gguf file in it"),
    ):
        (tmp_path / name).touch()
        with pytest.raises(ModelNotFound, match=reason):
            read_header(tmp_path)


def test_missing_files_folders_and_pipes_differ(tmp_path: Path) -> None:
    """A missing file, a folder, and a pipe, which must not be waited for."""
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    for path, reason in (
        (tmp_path / "none.gguf", "no such file"),
        (tmp_path, "is a folder"),
        (pipe, "is not a file"),
    ):
        with pytest.raises(ModelNotFound, match=reason):
            read_header(path)


@pytest.mark.parametrize("fraction", [0.001, 0.01, 0.3, 0.9, 0.999])
def test_an_interrupted_download_is_incomplete(tmp_path: Path, fraction: float) -> None:
    """Wherever it was cut: in the metadata, the tensors' list or their data."""
    path = truncate(write_model(tmp_path / "cut.gguf", "llama"), fraction)

    with pytest.raises(ModelWontLoad, match="unfinished download"):
        read_header(path)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("end", [io.DEFAULT_BUFFER_SIZE, 2**20])
def test_a_header_longer_than_the_files_buffer_is_read_on(tmp_path: Path, end: int) -> None:
    """Cut everywhere around the end of the buffer, it is incomplete; whole, it is right."""
    words = Vocabulary(size=100_000)
    path = write_model(tmp_path / "long.gguf", "llama", vocabulary=words, num_layers=1, width=32)
    data = path.read_bytes()
    assert len(read_header(path).tensors) == 12
    for size in range(end - 12, end + 12):
        path.write_bytes(data[:size])
        with pytest.raises(ModelWontLoad, match="unfinished download"):
            read_header(path)


def test_all_parts_of_a_split_model_are_read(tmp_path: Path) -> None:
    """Tensors of every part, metadata of the first."""
    parts = write_parts(tmp_path)
    header = read_header(parts[0])

    assert header.parts == tuple(parts)
    assert list(header.tensors) == [f"blk.{number}" for number in range(6)]
    assert header.num_layers == 3
    assert header.file_bytes == sum(part.stat().st_size for part in parts)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a whole small model."""
    path = tmp_path_factory.mktemp("fuzz") / "small.gguf"
    return write_model(path, "qwen35", num_layers=2, width=32).read_bytes()


@pytest.mark.slow
@given(data=st.data())
@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_damage_gets_out_as_anything_but_an_error_of_ours(
    tmp_path: Path, small: bytes, data: st.DataObject
) -> None:
    """Bytes and whole numbers anywhere in the header replaced, and the file cut: never a crash."""
    damaged = bytearray(small)
    for _ in range(data.draw(st.integers(1, 4))):
        size = data.draw(st.sampled_from([1, 4, 8]))
        place = data.draw(st.integers(4, 12_000 - size))
        number = data.draw(
            st.sampled_from([0, 1, 5, 2**31, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
        )
        damaged[place : place + size] = number.to_bytes(8, "little")[:size]
    path = tmp_path / "damaged.gguf"
    path.write_bytes(damaged[: data.draw(st.sampled_from([len(damaged), 11_000, 100]))])
    try:
        header = read_header(path)
    except ModelWontLoad as refusal:
        message = str(refusal)
    else:
        message = f"{header.quantisation} {header.num_bytes} {header.num_parameters}"
    assert message.isprintable()


def test_a_prediction_head_is_not_a_whole_model(tmp_path: Path) -> None:
    """By its tensors: the metadata describes the model that it belongs to."""
    head = write_model(tmp_path / "mtp.gguf", "qwen35", is_head_only=True)
    whole = write_model(tmp_path / "model.gguf", "qwen35")

    assert is_head_only(read_header(head))
    assert not is_head_only(read_whole_model(whole))
    with pytest.raises(ModelWontLoad, match=r"mtp\.gguf holds only a prediction head"):
        read_whole_model(head)
