"""`specchat ask` for an answer of a form: valid, or an exit code and a line that says why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.test_ask import FAST
from conftest import WriteModel
from in_process import run_here as run
from tables import table

GREEDY = ["--temp", "0", "--no-stdin", "A pet, please"]


@pytest.fixture(scope="module")
def model(tiny: WriteModel) -> list[str]:
    """Return the options that name a tiny target and its draft."""
    return ["--target", str(tiny("llama")), "--draft", str(tiny("llama", "half right")), *FAST]


@pytest.mark.slow
def test_a_schema_makes_json_and_a_record_of_it(model: list[str], tmp_path: Path) -> None:
    """From a file, as JSON text and as fields; `--json` has the data as a value."""
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    path = tmp_path / "my schema.json"
    path.write_text(json.dumps(schema))
    texts = [
        run("ask", *model, "--schema", each, *GREEDY).stdout
        for each in (str(path), json.dumps(schema), "ok bool")
    ]
    assert texts == [texts[0]] * 3
    assert list(json.loads(texts[0])) == ["ok"]
    record = json.loads(run("ask", *model, "--schema", "ok bool", "--json", *GREEDY).stdout)
    assert record["data"] == json.loads(texts[0]) == json.loads(record["text"])
    assert record["valid"] is True
    assert record["forced"] == record["stats"]["forced"] > 3


@pytest.mark.slow
def test_lists_choices_expressions_and_grammars(model: list[str], tmp_path: Path) -> None:
    """Each makes the text that it describes."""
    grammar = tmp_path / "list.gbnf"
    grammar.write_text('root ::= "- " [a-c] "\\n- " [a-c]')
    listed = run("ask", *model, "--schema-list", "ok bool", "--max-tokens", "200", *GREEDY)
    assert listed.stdout.startswith(b'{"items": [')
    choice = run("ask", *model, "--choices", "yes,no", *GREEDY).stdout.decode().strip()
    assert choice in {"yes", "no"}
    year = run("ask", *model, "--regex", "[12][0-9]{3}", *GREEDY).stdout.decode().strip()
    assert 1000 <= int(year) < 3000
    lines = run("ask", *model, "--grammar", grammar, *GREEDY).stdout.decode().split("\n")
    assert [line[:2] for line in lines[:2]] == ["- ", "- "]


@pytest.mark.slow
def test_a_cut_answer_fails_and_is_kept(model: list[str]) -> None:
    """Exit code 1, the text so far, and a line that names the field that ran away."""
    done = run("ask", *model, "--schema", "name", "--max-tokens", "12", *GREEDY)
    assert done.returncode == 1
    assert done.stdout.startswith(b'{"name": "')
    (line,) = done.stderr.decode().strip().split("\n")
    assert "--max-tokens ended it after 12 tokens, within name" in line
    assert "maxLength" in line
    done = run("ask", *model, "--schema", "name", "--max-tokens", "12", "--json", *GREEDY)
    record = json.loads(done.stdout)
    assert (done.returncode, record["valid"], record["data"]) == (1, False, None)
    assert record["finish"] == "length"


@table(
    ("words", "named"),
    [
        (["--schema", '{"type": "nonsense"}'], "nonsense"),
        (["--schema", '{"type": "object", "properties": {"a": {"not": {}}}}'], "not"),
        (["--schema", "{broken"], "not valid JSON"),
        (["--schema", "missing.json"], "missing.json"),
        (["--regex", "("], "regular expression"),
        (["--regex", "a\udcff"], "regular expression cannot be read as UTF-8"),
        (["--choices", ","], "choices"),
        (["--choices", "a,\udcff"], "choices cannot be read as UTF-8"),
        (["--grammar", "missing.lark"], "missing.lark"),
        (["--schema", "json", "--regex", "a"], "--schema and --regex"),
        (["--schema", "json", "--stop"], "--stop"),
    ],
)
def test_what_cannot_be_enforced_is_one_line(
    model: list[str], words: list[str], named: str
) -> None:
    """Exit code 2, before anything is decoded."""
    done = run("ask", *model, *GREEDY, *words)
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().strip().split("\n")
    assert named in line
    assert len(line) < 400


@pytest.mark.slow
def test_a_relaxed_check_says_what_it_leaves_out(model: list[str]) -> None:
    """The answer is what the rest of the schema allows."""
    schema = {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "maxItems": 3}
    strict = run("ask", *model, "--schema", json.dumps(schema), *GREEDY)
    assert strict.returncode == 2
    assert b"uniqueItems" in strict.stderr
    words = ["--schema", json.dumps(schema), "--schema-check", "relaxed"]
    done = run("ask", *model, *words, *GREEDY)
    found = json.loads(done.stdout)
    assert set(found) <= {1, 2}
    assert done.returncode == int(len(set(found)) < len(found))
    assert b"uniqueItems" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("is_fit", [True, False])
def test_a_relaxed_answer_is_checked_afterwards(model: list[str], *, is_fit: bool) -> None:
    """One that breaks what is not enforced fails, is kept, and a line names place and keyword."""
    excluded = {"const": "x"} if is_fit else {"enum": [True, False]}
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean", "not": excluded}},
        "required": ["ok"],
    }
    words = ["--schema", json.dumps(schema), "--schema-check", "relaxed", "--json"]
    done = run("ask", *model, *words, *GREEDY)
    record = json.loads(done.stdout)
    data = json.loads(record["text"])
    assert record["finish"] == "stop"
    assert (record["valid"], record["data"]) == ((True, data) if is_fit else (False, None))
    assert done.returncode == int(not is_fit)
    notice, *reasons = done.stderr.decode().strip().split("\n")
    assert notice == '"not" at #/properties/ok of the JSON Schema is not enforced'
    told = 'the answer does not fit the JSON Schema: ok breaks "not" ('
    assert [each[: len(told)] for each in reasons] == [told] * (not is_fit)


@pytest.mark.slow
def test_an_answer_of_one_step_is_checked_too(model: list[str]) -> None:
    """The line comes once."""
    schema = {"const": "a", "not": {"type": "string"}}
    words = ["--schema", json.dumps(schema), "--schema-check", "relaxed"]
    done = run("ask", *model, *words, *GREEDY)
    assert (done.returncode, done.stdout.strip()) == (1, b'"a"')
    assert done.stderr.count(b'it breaks "not"') == 1
