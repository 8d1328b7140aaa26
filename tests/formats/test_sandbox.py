"""Hostile templates end soon, with an error; all others render as everywhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jinja2
import psutil
import pytest

from scripts.support.processes import still_running
from specchat.errors import TemplateError
from specchat.formats import template as templates
from specchat.formats.chat_message import ChatMessage
from specchat.formats.template import render
from tables import table

LIMITS = "it exceeded|exceeds the limit"
MANY = "{% for i in range(100000) %}"
DOUBLING = (
    "{% set ns = namespace(a=BEGIN) %}{% for i in range(60) %}{% set ns.a = MORE %}{% endfor %}"
)


def doubling(begin: str, more: str, end: str = "") -> str:
    """Return a template that enlarges a value sixty times."""
    return DOUBLING.replace("BEGIN", begin).replace("MORE", more) + end


@pytest.mark.slow(keep=1)
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
        "{{ [1, 2] | batch(1000000000, 'x') | list }}",
        "{{ ('a' * 4000000).replace('a', 'b' * 4000) }}",
        "{{ ('a' * 4000000) | replace('a', 'b' * 4000) }}",
        "{{ ('a' * 100000).join(['b'] * 100000) }}",
        "{{ range(100000) | map('string') | join('x' * 4000000) }}",
        "{{ '\\t'.expandtabs(2000000000) }}{{ ('\\t' * 4000000).expandtabs(4000000) }}",
        "{{ ('x' * 100000).translate({120: 'y' * 1000000}) }}",
        "{{ [[1] * 100000] * 10000 | sum(start=[]) }}",
        "{{ (range(100000) | list * 100) | sort }}",
        "{{ lipsum(n=10000000) }}",
        "{{ ('a' * 2000000) | wordwrap(1) | length }}",
        "{{ ('<!---->' * 2000000) | striptags }}{{ 'x' * 9999999 }}",
        "{{ strftime_now('%c' * 1000000) }}",
        "{{ strftime_now('%9999d') }}{{ 'x' * 9999999 }}",
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
def test_templates_that_would_fill_memory_are_refused(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is one line, within the time limit."""
    monkeypatch.setattr(templates, "MOST_SECONDS", 0.3)
    with pytest.raises(TemplateError) as raised:
        render(template, {})
    assert "\n" not in str(raised.value)
    assert "()" not in str(raised.value)


@pytest.mark.slow(keep=3)
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
        "{% set a='a'*2000000 %}{{ a.rfind('ab'+'a'*1000000) }}",
        "{% set a='a'*2000000 %}{{ a.rindex('ab'+'a'*1000000) }}",
        "{% set a='a'*2000000 %}{{ a.rsplit('ab'+'a'*1000000) }}",
        "{% set a='a'*2000000 %}{{ a.rpartition('ab'+'a'*1000000) }}",
        "{% set a='a'*4000000 %}{{ a.strip('b'*4000000+'a') }}",
        "{% set a='a'*4000000 %}{{ a.lstrip('b'*4000000+'a') }}",
        "{% set a='a'*4000000 %}{{ a|trim('b'*4000000+'a') }}",
        "{% set b=9+messages|length %}{% set n=b**9000000 %}{% set m=b**4000000 %}{{ (n//m)>1 }}",
        "{% set b=9+messages|length %}{% set n=b**9000000 %}{% set m=b**4000000 %}{{ (n%m)>1 }}",
        "{{ ('a'*750).join('b'*2000000) }}",
    ],
)
def test_endless_templates_end(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time limit, whatever it is computing."""
    monkeypatch.setattr(templates, "MOST_SECONDS", 0.1)
    with pytest.raises(TemplateError, match=LIMITS):
        render(template, {})


def test_a_very_long_template_is_refused_unread() -> None:
    """Real templates are far shorter."""
    with pytest.raises(TemplateError, match=r"^the model's chat template is too long \(780000 "):
        render("{% set a=1 %}" * 60_000, {})
    assert render("{# remark #}" * 3000 + "hello", {}) == "hello"


@table(
    "template",
    [
        "{{ [1, 2] | batch(1000000000) | list }}",
        "{{ 'x'.translate({120: 'y' * 1000000}) }}",
        "{{ [[1] * 100000] | sum(start=[]) }}",
        "{{ ('<!---->' * 50000) | striptags }}",
        "{{ strftime_now('%9999d') }}",
    ],
)
def test_large_numbers_within_the_limits_are_rendered(template: str) -> None:
    """A large number alone does not make a template hostile."""
    assert len(render(template, {})) <= 1_000_000


def test_a_namespace_that_holds_itself_is_written_once() -> None:
    """Writing it out would otherwise never end."""
    text = render("{% set ns = namespace(a=1) %}{{ ns.a }}{% set ns.a = ns %}{{ ns }}", {})
    assert text.startswith("1<")
    assert len(text) < 100


def test_what_a_template_says_cannot_control_a_terminal() -> None:
    """Its own error is shown without escape sequences."""
    with pytest.raises(TemplateError, match="\ufffd\\[2J"):
        render("{{ raise_exception('\\x1b[2J') }}", {})


def test_another_process_renders_after_one_that_ended() -> None:
    """A hostile template, or the end of the process, does no harm to the next one."""
    with pytest.raises(TemplateError, match=LIMITS):
        render("{{ 'x'.ljust(10000000000) }}", {})
    assert render("{{ 1 }}", {}) == "1"
    process = templates.TEMPLATES.start()
    process.kill()
    process.wait()
    assert render("{{ 2 }}", {}) == "2"


@pytest.mark.skipif(sys.platform == "win32", reason="there, the clock's time is limited")
def test_a_template_that_waits_for_a_processor_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is on the processor's time: a busy machine makes no template fail."""
    monkeypatch.setattr(templates, "MOST_SECONDS", 1.0)
    assert render("{{ 1 }}", {}) == "1"  # the process has started
    process = templates.TEMPLATES.start()
    for seconds, number in ((0.1, signal.SIGSTOP), (2.1, signal.SIGCONT)):
        threading.Timer(seconds, os.kill, (process.pid, number)).start()

    takes_a_while = "{% for i in range(60) %}" + MANY + "{% endfor %}{% endfor %}"
    assert render(takes_a_while + "{{ 4 }}", {}) == "4"
    assert templates.TEMPLATES.start() is process


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_an_interrupted_rendering_leaves_no_answer_behind() -> None:
    """The next template gets its own text."""
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        render(MANY + MANY + "{% endfor %}{% endfor %}", {})

    assert render("{{ 3 }}", {}) == "3"


@pytest.mark.slow
def test_rendering_takes_no_memory_here() -> None:
    """A hostile template allocates in its own process."""
    before = psutil.Process().memory_info().rss
    with pytest.raises(TemplateError):
        render("{{ 'x' * 400000000 }}", {})
    assert psutil.Process().memory_info().rss - before < 50_000_000


@table(
    ("expression", "wanted"),
    [
        ("'a' ~ 1 ~ none ~ ['b']", "a1None['b']"),
        ("('a', 1) + (2,)", "('a', 1, 2)"),
        ("{'a': [1, 2]} | tojson", '{"a": [1, 2]}'),
        ("{'a': 'é'} | tojson(ensure_ascii=true, separators=(',', ':'))", '{"a":"\\u00e9"}'),
        ("{'a': 1} | tojson(cls=dict, default=dict)", '{"a": 1}'),
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
def test_common_expressions_work(expression: str, wanted: str) -> None:
    """Results equal those of Jinja without a sandbox."""
    assert render("{{ " + expression + " }}", {}) == wanted
    if "tojson" not in expression:  # which Jinja itself escapes
        assert jinja2.Environment().from_string("{{ " + expression + " }}").render() == wanted  # noqa: S701


def test_tuples_are_unpacked() -> None:
    """Unpacking works in loops and assignments."""
    template = "{% for a, b in [(1, 2)] %}{% set c, d = b, a %}{{ a }}{{ c }}{{ d }}{% endfor %}"
    assert render(template, {}) == "121"


def test_a_long_conversation_is_rendered_within_the_limits() -> None:
    """Thousands of messages take less than the time limit."""
    template = (
        "{% for m in messages %}{{ '<|start|>' + m.role ~ '\\n' ~ m.content | trim }}"
        "{% if loop.last and messages | length > 1 %}!{% endif %}{% endfor %}"
    )
    turns: list[ChatMessage] = [{"role": "user", "content": "word " * 100}] * 5000
    assert render(template, {"messages": turns}).endswith("word!")


RENDERING = """
import sys
from specchat.formats.template import render
print("ready", flush=True)
render(sys.argv[1], {})
"""


@pytest.mark.slow
def test_a_template_does_not_outlive_the_process_that_asked_for_it() -> None:
    """Killed in the middle of a hostile template, nothing of it runs on."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    template = "{% set a='a'*2000000 %}{{ a.rfind('ab'+'a'*1000000) }}"
    command = [sys.executable, "-c", RENDERING, template]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 60
        while not (children := psutil.Process(process.pid).children(recursive=True)):
            assert time.monotonic() < deadline
        time.sleep(0.5)  # until the template runs
        process.kill()

    assert children
    assert still_running(children, timeout_s=30) == []


def test_a_template_may_change_lists_of_its_own_and_no_others() -> None:
    """Kimi K2's template keeps the ids of calls in one."""
    own = "{% set ids = [] %}{% set _ = ids.append(messages[0]) %}{{ ids.pop(0) }}{{ ids }}"
    assert render(own, {"messages": ["a"]}) == "a[]"

    for change in ("messages.append(1)", "messages.pop()", "messages[0].x.append(1)"):
        with pytest.raises(TemplateError, match="unsafe"):
            render("{{ " + change + " }}", {"messages": [{"x": []}]})


def test_what_jinja_makes_lazily_is_a_list_in_json() -> None:
    """As elsewhere; and text that is called safe is text."""
    assert render("{{ messages | map(attribute='x') | tojson }}", {"messages": [{"x": 1}]}) == "[1]"
    assert render("{{ 'a'|safe + messages | tojson }}", {"messages": ["<"]}) == 'a["<"]'
