"""models.toml: what comes with specchat, and what a user's own adds."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from catalogue_files import CONTENT, DRAFT, DRAFT_CONTENT, FILE, get
from hub_server import HubServer
from specchat.catalogue.catalogue_file import (
    DEMO,
    find_entry,
    known,
    load_entries,
    own_catalogue_path,
    read_catalogue,
)
from specchat.catalogue.entry import HEAD_KINDS, Entry
from specchat.catalogue.fit import CONTEXT, GB, memory_of, need_of, size_of
from specchat.catalogue.pairs import find_pair, load_pairs
from specchat.catalogue.projectors import NAMES
from specchat.errors import CatalogueError, ModelNotFound
from specchat.gguf.draft_kinds import KINDS
from specchat.hub.pins import pinned
from specchat.hub.references import MAIN, Reference, is_commit

OWN = """
[file.small]
repository = "org/small"
file = "quantised/small-Q8.gguf"

[pair.mine]
description = "My own"
target = { repository = "org/model", file = "model-Q4.gguf" }
draft = "small"
sampling = { temperature = 0.5 }

[pair.demo]
description = "Mine, not theirs"
target = "somewhere/target.gguf"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models.toml of the user's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = own_catalogue_path()
    path.parent.mkdir(parents=True)
    path.write_text(OWN)
    return path


def test_all_parts_of_a_split_file_count(tmp_path: Path) -> None:
    """A target in two files beside a draft model in one."""
    parts = [tmp_path / f"big-0000{number}-of-00002.gguf" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        part.write_bytes(b"x" * 1000 * number)
    draft = tmp_path / "small.gguf"
    draft.write_bytes(b"x" * 500)
    entry = Entry("mine", "My own", parts[0], draft)

    assert entry.num_bytes == entry.bytes_here == 3500


def test_a_draft_that_comes_with_specchat_is_no_part_of_a_download(own: Path) -> None:
    """A pair of which nothing was fetched yet has nothing here."""
    entry = load_entries()["smollm2-135m"]

    assert entry.paths[1]
    assert (entry.bytes_here, entry.num_bytes) == (0, pinned(entry.references[0]).size)


def test_what_comes_with_specchat_is_sound() -> None:
    """Names, sizes and sampling are such as can be used; whole pins are to commits."""
    entries = load_entries()

    assert len(entries) > 15
    for entry in entries.values():
        assert entry.description
        assert entry.name == DEMO or entry.references
        assert entry.name == DEMO or entry.num_bytes or entry.about_gb
        assert (entry.kind in {"none", "mtp-embedded"}) == (entry.draft is None)
        for reference in entry.references:
            assert reference.revision == "main" or is_commit(reference.revision)
    load_pairs()  # which also checks the names of sampling options


def test_memory_needs_are_plausible() -> None:
    """More than the files, not much more with a usual context, and growing with it."""
    for entry in load_entries().values():
        lengths = sorted(entry.memory_gb)
        needs = [entry.memory_gb[length] for length in lengths]
        files_gb = size_of(entry) / GB
        assert len(lengths) >= 2, entry.name
        assert needs == sorted(set(needs)), entry.name
        assert needs[0] > files_gb, entry.name
        assert entry.name == DEMO or CONTEXT in lengths, entry.name
        assert entry.name == DEMO or entry.memory_gb[CONTEXT] < files_gb + 5, entry.name


def test_the_demo_pairs_memory_agrees_with_its_files() -> None:
    """The two differ by at most a tenth, for the context that both know."""
    entry = find_entry(DEMO)
    pair = find_pair(DEMO)
    (message,) = memory_of(pair.target, pair.draft)

    assert entry.memory_gb[message.ctx] * GB == pytest.approx(message.num_bytes, rel=0.1)


def test_pairs_share_their_draft() -> None:
    """The same reference, pin and all, so that it is downloaded once."""
    entries = load_entries()

    shared = {entries[name].draft for name in ("qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b")}
    assert len(shared) == 1


def test_a_pair_that_is_not_here_says_how_to_get_it(hub: HubServer) -> None:
    """The error shows the command, and the size where it is known."""
    with pytest.raises(ModelNotFound, match=r"`specchat pull qwen3-8b` fetches it \(5.67 GB\)"):
        find_pair("qwen3-8b")
    with pytest.raises(ModelNotFound, match=r"`specchat pull smollm2-1.7b` fetches it$"):
        find_pair("smollm2-1.7b")
    assert hub.seen == []


def test_a_pair_that_was_pulled_is_found(hub: HubServer, own: Path) -> None:
    """Its files are where the cache has them, its sampling as the catalogue says."""
    hub.put(FILE.repository, FILE.file, CONTENT)
    hub.put(DRAFT.repository, DRAFT.file, DRAFT_CONTENT)
    paths = get(*find_entry("mine").references)
    pair = find_pair("mine")

    assert [pair.target, pair.draft] == paths
    assert pair.sampling == {"temperature": 0.5}


def test_a_file_of_the_users_own_adds_and_replaces(own: Path) -> None:
    """Its paths begin where it lies."""
    entries = load_entries()

    assert entries["mine"].references == (FILE, DRAFT)
    assert entries[DEMO].target == own.parent / "somewhere/target.gguf"
    assert "qwen3-8b" in entries


def test_a_damaged_file_of_the_users_own_is_named(own: Path) -> None:
    """The error names the user's file, not the built-in catalogue."""
    own.write_text("[pair")
    with pytest.raises(CatalogueError, match=str(own)):
        load_entries()


def test_a_file_that_the_catalogue_pins_has_that_pin(own: Path) -> None:
    """The pin applies however the user names the file, but only to its revision."""
    target = find_entry("qwen3-8b").target
    assert isinstance(target, Reference)

    assert known(Reference(target.repository, target.file)) == target
    assert known(FILE) == FILE
    other = Reference(target.repository, target.file, "0" * 40)
    assert known(other) == other


TARGET = "target = 'a.gguf'\n"
PIN = "[pair.x.target]\nrepository = 'a/b'\nfile = 'c.gguf'\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("target = {repository = 'a/b'}", "3: pair x: 'file' is missing"),
        ("target = {repository = '../b', file = 'c.gguf'}", "3: pair x: .*invalid Hugging Face"),
        ("target = {repository = 'a/b', file = '../c.gguf'}", "3: pair x: .*invalid Hugging"),
        (
            "target = {repository = 'a/b', file = 'c.gguf', sha = ''}",
            "3: pair x: unknown key 'sha'",
        ),
        (
            "[pair.x.target]\nrepository = 'a/b'\nfile = 'c.gguf'\n\nbytes = -1",
            "7: pair x: bytes must be a whole number of at least 1, not -1",
        ),
        ("target = {repository = 'a/b', file = 'c.gguf', sha256 = 'f'}", "3: pair x: .*64 digits"),
        (
            "target = {repository = 'a/b', file = 'c.gguf', wheel = 'w'}",
            '3: pair x: wheel must be a table, not "w"',
        ),
        (
            f"{PIN}wheel = {{ package = 'w', version = '1' }}",
            "6: pair x: 'file' is missing",
        ),
        (
            f"{PIN}wheel = {{ package = 'w', version = '1', file = 'c.gguf' }}",
            "3: pair x: c.gguf: a wheel needs revision",
        ),
        ("target = 3", "3: pair x: target must be a table, the name of a file, or a path"),
        ("target = 'qwen'", r"3: pair x: there is no \[file.qwen\], and it is neither the path"),
        (
            "target = '~missing-user/a.gguf'",
            "3: pair x: the home folder of '~missing-user/a.gguf' does not exist",
        ),
        (f"{TARGET}kind = 'magic'", '4: pair x: kind must be one of simple, .*, not "magic"'),
        (f"{TARGET}kind = 'simple'", "4: pair x: kind simple goes with a draft"),
        (f"{TARGET}draft = 'b.gguf'\nkind = 'none'", "5: pair x: kind none goes without a draft"),
        (f"{TARGET}tier = 'huge'", "4: pair x: tier must be one of small, medium, large"),
        (f"{TARGET}temperature = 1", "4: pair x: unknown key 'temperature'"),
        (
            f"{TARGET}sampling = {{ top_p = 2 }}",
            "4: pair x: top_p must be a number above 0 and at most 1, not 2",
        ),
        (
            f"{TARGET}sampling = {{ top_k = 'a' }}",
            '4: pair x: top_k must be a whole number of at least 0, not "a"',
        ),
        (f"{TARGET}about_gb = 0", "4: pair x: about_gb must be a number above 0, not 0"),
        (f"{TARGET}memory_gb = {{ 4k = 1 }}", "4: pair x: 4k must be a context size in tokens"),
        (
            f"{TARGET}[pair.x.memory_gb]\n4096 = 2\n8192 = -3",
            "6: pair x: 8192 must be a number above",
        ),
        (
            f"{TARGET}active_share = 60",
            "4: pair x: active_share must be a number above 0 and at most 1, not 60",
        ),
        (
            f"{TARGET}projector = {{ repository = 'a/b', file = 'mmproj.gguf' }}",
            "4: pair x: the projector must be in the target's repository",
        ),
        (f"{TARGET}[pair.x.projector]\nfile = 'a'", "4: pair x: 'repository' is missing"),
        (f"{TARGET}[file.y]\nrepository = 'a/b'", "4: file y: 'file' is missing"),
        (
            f"{TARGET}[files.y]\nrepository = 'a/b'",
            "4: unknown key 'files': use one of file, head, pair",
        ),
        (f"{TARGET}[head.y]\nmodel = 'a'\nkind = 'mtp'", "4: head y: 'file' is missing"),
        (
            f"{TARGET}[head.y]\nmodel = 'a'\nkind = 'simple'\nfile = {{ file = 'a.gguf' }}",
            '6: head y: kind must be one of mtp, .*, not "simple"',
        ),
        (f"{TARGET}[head.y.file]\nfile = 'a.gguf'", "4: head y: 'kind' is missing"),
        ("target = [", "3: this is not TOML"),
    ],
)
def test_mistakes_in_an_entry_are_reported_with_their_line(
    tmp_path: Path, content: str, message: str
) -> None:
    """In one line that names the file, the line in it, and the rule."""
    path = tmp_path / "models.toml"
    path.write_text(f"[pair.x]\ndescription = 'd'\n{content}\n")
    with pytest.raises(CatalogueError, match=f"models.toml line {message}") as raised:
        load_entries(path)
    assert "\n" not in str(raised.value)


def test_a_pair_of_the_users_own_may_name_a_shared_file(own: Path) -> None:
    """A file of the built-in catalogue keeps its pin in the user's pair."""
    own.write_text("[pair.x]\ndescription = 'd'\ntarget = 'a.gguf'\ndraft = 'qwen3-0.6b'\n")

    assert find_entry("x").draft == find_entry("qwen3-8b").draft


def test_a_pair_without_a_target_changes_the_one_of_that_name(own: Path) -> None:
    """Named fields change, and facts that no longer hold are dropped."""
    before = find_entry("qwen3-8b")
    own.write_text(
        "[pair.qwen3-8b]\nsampling = { temperature = 0.1 }\n"
        "[pair.qwen3-14b]\ndraft = 'qwen2.5-coder-0.5b'\n"
        "[pair.gpt-oss-20b]\ndraft = 'b.gguf'\n"
        "[pair.qwen3-32b]\nkind = 'none'\n"
    )
    entries = load_entries()
    changed, other = entries["qwen3-8b"], entries["qwen3-14b"]

    assert changed == replace(before, sampling={"temperature": 0.1})
    assert (other.draft, other.memory_gb) == (entries["qwen25-coder-7b"].draft, {})
    assert other.sampling == before.sampling
    assert (entries["gpt-oss-20b"].kind, entries["qwen3-32b"].draft) == ("simple", None)


BROKEN = """
[file.half]
repository = "org/small"
colour = 3

[pair.good]
description = "d"
target = "a.gguf"

[pair.bad]
target = "b.gguf"
tier = "huge"
sampling = { top_p = 2, heat = 3 }

[pair.on-half]
description = "d"
target = "c.gguf"
draft = "half"

[pair.qwen3-8b]
licence = 7
"""


def test_all_mistakes_are_listed_in_the_order_of_the_file(own: Path) -> None:
    """Each on a line of its own; an error is one line and says how many more there are."""
    own.write_text(BROKEN)
    mistakes = [line.removeprefix(f"{own} ") for line in read_catalogue().mistakes]

    assert [line.partition(":")[0] for line in mistakes] == [
        *("line 2", "line 4", "line 10", "line 12", "line 13", "line 13", "line 21"),
    ]
    assert mistakes[0] == "line 2: file half: 'file' is missing"
    assert mistakes[3].startswith(
        "line 12: pair bad: tier must be one of small, medium, large, not"
    )
    with pytest.raises(CatalogueError) as raised:
        load_entries()
    message = f"{own} {mistakes[0]}; and 6 more: `specchat doctor` lists them all"
    assert str(raised.value) == message


def test_mistakes_stop_only_those_who_need_what_is_wrong(own: Path) -> None:
    """Pairs without a mistake are found; those with one are not replaced by others of that name."""
    own.write_text(BROKEN)

    assert find_entry("good").target == own.parent / "a.gguf"
    assert find_pair(DEMO).target.is_file()
    assert find_entry("qwen3-14b").references
    assert DEMO in load_pairs()
    assert known(FILE) == FILE
    for name in ("bad", "on-half", "qwen3-8b"):
        with pytest.raises(CatalogueError, match="line 2"):
            find_entry(name)


def test_a_file_that_cannot_be_read_stops_no_demo_pair(own: Path) -> None:
    """The unreadable file might redefine any other pair."""
    own.write_text("[pair")

    assert find_pair(DEMO).target.is_file()
    assert known(FILE) == FILE
    with pytest.raises(CatalogueError, match="this is not TOML"):
        find_entry("qwen3-8b")


def test_a_pair_that_names_a_filter_goes_without_the_others(own: Path) -> None:
    """Makers say all they want; a temperature alone leaves what is built in."""
    own.write_text(
        "[pair.x]\ndescription = 'd'\ntarget = 'a.gguf'\nsampling = { top_k = 20 }\n"
        "[pair.y]\ndescription = 'd'\ntarget = 'a.gguf'\nsampling = { temperature = 1.0 }\n"
    )

    assert find_entry("x").sampling == {"top_k": 20, "top_p": 1.0, "min_p": 0.0}
    assert find_entry("y").sampling == {"temperature": 1.0}
    assert find_entry("qwen3-8b").sampling["min_p"] == find_entry("gpt-oss-20b").sampling["min_p"]


SIZE_IN_WORDS = re.compile(r"([\d.]+) GB")


def test_what_a_description_promises_is_enough() -> None:
    """With that many GB free the pair runs with a context of 8192 tokens."""
    message = {
        entry.name: (float(size), need_of(entry) or 0)
        for entry in load_entries().values()
        for size in SIZE_IN_WORDS.findall(entry.description)
    }

    assert len(message) > 8
    assert {name for name, (size, need) in message.items() if size * GB < need} == set()


def test_what_a_pair_needs_is_read(own: Path) -> None:
    """Memory by the context's length, and the share of its weights that a token reads."""
    own.write_text(
        "[pair.x]\ndescription = 'd'\ntarget = 'a.gguf'\nmemory_gb = { 4096 = 5.5, 32768 = 9 }\n"
        "active_share = 0.17\n"
    )
    entry = find_entry("x")

    assert entry.memory_gb == {4096: 5.5, 32768: 9}
    assert entry.active_share == 0.17


def test_projectors_are_pinned_and_named_by_their_convention() -> None:
    """Those that come with specchat; a file by its name is the pinned one."""
    found = [each.projector for each in load_entries().values() if each.projector]
    assert len(found) >= 3
    for projector in found:
        assert fnmatchcase(projector.name, NAMES)
        assert projector.size
        assert len(projector.sha256 or "") == 64
        if projector.revision == MAIN:
            assert known(Reference(projector.repository, projector.file)) == projector


def test_each_kind_of_head_has_its_title_in_the_catalogue() -> None:
    """The catalogue names the kinds without importing them, as the chat's first frame waits."""
    kinds = [kind.catalogue_kind for kind in KINDS.values() if kind.catalogue_kind]
    assert set(HEAD_KINDS) == set(kinds)
