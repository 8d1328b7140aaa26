"""The sandbox's budget: templates out for time or memory end soon, all others notice nothing."""

from __future__ import annotations

import jinja2
import pytest

from specchat.chat import spending
from specchat.chat.sandbox import Sandbox
from specchat.chat.template import render
from specchat.errors import TemplateError

MANY = "{% for i in range(100000) %}"
DOUBLING = (
    "{% set ns = namespace(a=BEGIN) %}{% for i in range(60) %}{% set ns.a = MORE %}{% endfor %}"
)


def doubling(begin: str, more: str, end: str = "") -> str:
    """Return a template that makes something larger sixty times."""
    return DOUBLING.replace("BEGIN", begin).replace("MORE", more) + end


@pytest.mark.parametrize(
    "template",
    [
        "{{ 7 ** (10 ** 8) }}",
        doubling("9", "ns.a * ns.a"),
        doubling("9", "ns.a ** 60"),
        "{{ 1 | round(1000000000, 'ceil') }}",
        "{{ (5).to_bytes(10000000000, 'big') }}",
        "{{ 'x'.ljust(10000000000) }}",
        "{{ 'x' | center(10000000000) }}",
        "{{ ('a\\n' * 1000) | indent(1000000000) }}",
        "{{ ('a' * 100000) | indent('x' * 4000000) }}{{ ('a\\n' * 100000) | indent('x' * 4000) }}",
        "{{ '%0999999999d' | format(1) }}",
        "{{ '{:>9999999999}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 10000000000) }}",
        "{{ ('{0}' * 100000).format('x' * 4000000) }}",
        "{{ ('%s' * 3) % ('x' * 4000000,) * 100 }}",
        "{{ [1] | tojson(indent=10000000000) }}",
        "{{ [1] | slice(1000000000) | list }}",
        "{{ [1, 2] | batch(1000000000) | list }}",
        "{{ ('a' * 4000000).replace('a', 'b' * 4000) }}",
        "{{ ('a' * 4000000) | replace('a', 'b' * 4000) }}",
        "{{ ('a' * 100000).join(['b'] * 100000) }}",
        "{{ range(100000) | map('string') | join('x' * 4000000) }}",
        "{{ '\\t'.expandtabs(2000000000) }}{{ ('\\t' * 4000000).expandtabs(4000000) }}",
        "{{ 'x'.translate({120: 'y' * 1000000}) }}",
        "{{ [[1] * 100000] | sum(start=[]) }}",
        "{{ (range(100000) | list * 100) | sort }}",
        "{{ lipsum(n=10000000) }}",
        "{{ ('a' * 2000000) | wordwrap(1) | length }}",
        "{{ ('<!---->' * 50000) | striptags }}",
        "{{ strftime_now('%c' * 1000000) }}",
        "{{ strftime_now('%9999d') }}",
        doubling("'x'", "ns.a ~ ns.a"),
        doubling("'x'", "ns.a + ns.a"),
        doubling("[1]", "ns.a + ns.a"),
        doubling("[1]", "[ns.a, ns.a]", "{{ ns.a }}"),
        doubling("[1]", "{'a': ns.a, 'b': ns.a}", "{{ ns.a | tojson }}"),
        doubling("[1]", "dict(a=ns.a, b=ns.a)", "{{ ns.a | string }}"),
        doubling("['x' * 4000000]", "ns.a + ns.a", "{{ ns.a | join }}"),
        "{% set ns = namespace(a='x') %}" + MANY + "{% set ns.a %}{{ ns.a }}{{ ns.a }}{% endset %}"
        "{% endfor %}",
        "{% set x %}" + MANY + "x" * 10_000 + "{% endfor %}{% endset %}",
    ],
    ids=lambda template: template[:50],
)
def test_what_would_fill_memory_is_refused(template: str) -> None:
    """Before it is made, by one line that says so."""
    with pytest.raises(TemplateError) as told:
        render(template, [])
    assert "\n" not in str(told.value)
    assert str(told.value) != "the model's chat template failed (): ask with --raw, which uses none"


@pytest.mark.parametrize(
    "template",
    [
        MANY + MANY + "{% endfor %}{% endfor %}",
        MANY + "{% if (range(100000) | list)[-1] == i %}{% endif %}{% endfor %}",
        MANY + "{% if 'x' in range(100000) | map('string') %}{% endif %}{% endfor %}",
        "{{ ([range(100000)] * 100000) | map('list') | list | length }}",
        "{% macro f(n) %}{{ f(n - 1) if n }}{{ f(n - 1) if n }}{% endmacro %}{{ f(60) }}",
        MANY + MANY + "{{ strftime_now('%c' * 500) }}{% endfor %}{% endfor %}",
        "{% for a in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 60 }}{% endfor %}",
    ],
)
def test_what_would_take_for_ever_ends(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so much of the thread's time, whatever it is at."""
    monkeypatch.setattr(spending, "MOST_SECONDS", 0.05)
    with pytest.raises(TemplateError, match=r"it takes too long|too much of too little"):
        render(template, [])


def test_a_template_as_long_as_a_book_is_not_even_read() -> None:
    """Compiling is not on the budget, so it is refused before; real ones are far shorter."""
    with pytest.raises(TemplateError, match=r"^the model's chat template is too long \(780000 "):
        render("{% set a=1 %}" * 60_000, [])
    assert render("{# remark #}" * 3000 + "hello", []) == "hello"


def test_nobody_looks_into_a_namespace() -> None:
    """It could hold itself, many times over."""
    assert render("{% set ns = namespace(a=1) %}{{ ns }} {{ ns.a }}", []) == "<namespace> 1"


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("'a' ~ 1 ~ none ~ ['b']", "a1None['b']"),
        ("('a', 1) + (2,)", "('a', 1, 2)"),
        ("{'a': [1, 2]} | tojson", '{"a": [1, 2]}'),
        ("{'a': 'é'} | tojson(ensure_ascii=true, separators=(',', ':'))", '{"a":"\\u00e9"}'),
        ("['b', 'a'] | sort | join(', ')", "a, b"),
        ("'x,y'.split(',') | map('upper') | list", "['X', 'Y']"),
        ("'{} {:>4}'.format('a', 1)", "a    1"),
        ("'%s-%03d' % ('a', 7)", "a-007"),
        ("'a\\nb' | indent(2, first=true)", "  a\n  b"),
        ("[1, 2, 3] | sum + 2 ** 10 - 7 % 4", "1027"),
        ("[{'a': 1}, {'a': 2}] | selectattr('a', 'equalto', 2) | list | length", "1"),
        ("'aXbX' | replace('X', '--')", "a--b--"),
        ("dict(a=1).items() | list", "[('a', 1)]"),
        ("[1, 2][::-1]", "[2, 1]"),
        ("'-' * 3", "---"),
    ],
)
def test_what_templates_do_still_works(expression: str, wanted: str) -> None:
    """Jinja without the budget says the same."""
    assert render("{{ " + expression + " }}", []) == wanted
    if "tojson" not in expression:  # which Jinja itself escapes
        assert jinja2.Environment().from_string("{{ " + expression + " }}").render() == wanted  # noqa: S701


def test_names_are_unpacked_as_ever() -> None:
    """What stands left of an assignment is no list that somebody makes."""
    template = "{% for a, b in [(1, 2)] %}{% set c, d = b, a %}{{ a }}{{ c }}{{ d }}{% endfor %}"
    assert render(template, []) == "121"


def test_a_long_conversation_is_no_waste() -> None:
    """Thousands of turns stay far from the end of the budget."""
    sandbox = Sandbox()
    template = sandbox.from_string(
        "{% for m in messages %}{{ '<|start|>' + m.role ~ '\\n' ~ m.content | trim }}"
        "{% if loop.last and messages | length > 1 %}!{% endif %}{% endfor %}"
    )
    turns = [{"role": "user", "content": "word " * 100}] * 5000
    assert template.render(messages=turns).endswith("word!")
    assert sandbox.budget.share_left > 0.9
