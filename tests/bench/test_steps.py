"""A step of the allowance takes about the same time for all kinds of work.

Limits count steps, but their purpose is to limit time. So no function may take much more time per
step than everyday expressions do. The tests compare CPU times of this process within one run.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from reconciler.api.meta import Object
from reconciler.dialects.kyverno.preconditions import compile_conditions
from reconciler.engine.allowance import Allowance
from reconciler.engine.context import Context
from reconciler.engine.environment import environment_entry
from reconciler.engine.patch import SHIPPED
from reconciler.languages.jmespath import compile_expression
from reconciler.languages.jmespath.functions.registry import REGISTRY
from tests.unit.admission.conftest import make_index, make_mutating

MOST = 8.0
"""The limit of a step's time, in everyday steps; on a busy machine the ratio varies by half."""
TEXTS = [str(number) for number in range(1_000)]
STARS = "*a" * 10_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def certificate() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "everyday")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1))
    made = builder.sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


DATA = {
    "texts": TEXTS,
    "numbers": list(range(1, 1_001)),
    "objects": [{"a": number, "b": str(number)} for number in range(1_000)],
    "wide": {"a": [[number] for number in range(10_000)]},
    "maps": {f"k{number}": {"x": {"y": [1, {"z": number}]}} for number in range(200)},
    "text": "a" * 1_000,
    "umlauts": "ä" * 10_000,
    "slashes": "/" * 20_000,
    "stars": STARS,
    "json": "[" + "1," * 2_000 + "1]",
    "deep": "[" * 190 + "]" * 190,
    "yaml": "\n".join(f"k{number}: [1, {{a: b}}]" for number in range(100)),
    "ranges": " || ".join([">=1.0.0 <2.0.0"] * 200),
    "pem": certificate(),
    **environment_entry(now=NOW, randbelow=lambda limit: limit - 1),
}
TIME, LATER = "'2026-01-01T00:00:00Z'", "'2027-01-01T00:00:00Z'"
EVERYDAY = (
    "objects[*].a",
    "objects[*].{x: a, y: b}",
    "objects[?a > `10`].b",
    "map(&to_upper(@), texts)",
    "to_string(objects)",
)
CALLS = (
    "add('128Mi', '1Gi')",
    "add('1h1m1s1ms1us1ns1h1m1s', '1h1m1s1ms1us1ns1h1m1s')",
    "base64_decode('YWJj')",
    "base64_encode(@)",
    "compare(@, 'b')",
    "contains(@, 'b')",
    "divide('1Gi', '3Mi')",
    "ends_with(@, 'b')",
    "equal_fold('aA', @)",
    "image_normalize('registry.example.com:5000/a/b:c')",
    "is_external_url('http://[::1]:80/')",
    "items({a: `1`, b: `2`}, 'k', 'v')",
    "join(',', ['a', 'b', @])",
    "keys({a: `1`})",
    "label_match({a: 'b'}, {a: 'b'})",
    "length(@)",
    "lookup({a: 'b'}, 'a')",
    "max_by([{a: `1`}, {a: `2`}], &a)",
    "md5(@)",
    "merge({a: `1`}, {b: `2`})",
    "min_by([{a: `1`}, {a: `2`}], &a)",
    "modulo('100s', '7s')",
    "multiply('1h5m', `1.5`)",
    "not_null(@)",
    "object_from_lists(['a', 'b'], [`1`, `2`])",
    "parse_json('1')",
    'parse_json(\'{"a": {"b": []}}\')',
    "parse_yaml('a: 1')",
    "path_canonicalize('/a/b/../c')",
    "pattern_match('*1*', @)",
    "pattern_match('*a*b*c*d*e*', @)",
    "random('[a-z]{8}')",
    "regex_match('^[a-z]+$', @)",
    "regex_match(join('', ['^', @]), @)",
    "regex_replace_all('[0-9]', @, 'x')",
    "regex_replace_all_literal('[0-9]', @, 'x')",
    "replace('aaaa', 'a', 'b', `2`)",
    "replace_all('aaaa', 'a', 'b')",
    "reverse(@)",
    "round(`1.2345`, `2`)",
    "semver_compare('1.2.3', '>=1.0.0 <2.0.0')",
    "sha1(@)",
    "sha256(@)",
    "sort(['b', 'a', 'c'])",
    "sort_by([{a: 'b'}, {a: 'a'}], &a)",
    "split('a,b,c,d', ',')",
    "starts_with(@, 'b')",
    "subtract('1h5m', '2s')",
    "sum(['1Mi', '2Mi', '3Mi'])",
    f"time_add({TIME}, '1h')",
    f"time_after({TIME}, {LATER})",
    f"time_before({TIME}, {LATER})",
    f"time_between({TIME}, {TIME}, {LATER})",
    f"time_diff({TIME}, {LATER})",
    "time_now()",
    "time_now_utc()",
    "time_parse('2006-01-02', '2026-01-01')",
    f"time_since('', {TIME}, {LATER})",
    f"time_to_cron({TIME})",
    f"time_truncate({TIME}, '1h')",
    f"time_utc({TIME})",
    "to_array(@)",
    "to_boolean('true')",
    "to_lower(@)",
    "to_number(@)",
    "to_string({a: [`1`, `2`]})",
    "to_upper(@)",
    "trim(@, ' ')",
    "trim_prefix(@, 'a')",
    "truncate(@, `1`)",
    "type(@)",
    "values({a: `1`})",
)
"""Calls that are evaluated for each of a thousand texts."""
WHOLE = (
    "[wide]",
    "{a: wide}",
    "avg(numbers)",
    "equal_fold(umlauts, umlauts)",
    "items(maps, 'k', 'v')",
    "map(&abs(@), numbers)",
    "map(&ceil(@), numbers)",
    "map(&floor(@), numbers)",
    "max(numbers)",
    "min(numbers)",
    "parse_json(deep)",
    "parse_json(json)",
    "parse_yaml(yaml)",
    "path_canonicalize(slashes)",
    "pattern_match(stars, 'x')",
    "pattern_match(stars, text)",
    "regex_replace_all('(a)', text, '$1$1$1')",
    "semver_compare('1.2.3', ranges)",
    "sort_by(objects, &b)",
    "sum(numbers)",
    "to_upper(umlauts)",
    "x509_decode(pem)",
)
CONDITIONS = (
    ("{{ texts }}", "AnyIn", "*a" * 200),
    ("{{ texts }}", "AllNotIn", ["*a" * 20 + str(number) for number in range(20)]),
    ("{{ text }}", "Equals", STARS),
    ("x", "In", "{{ json }}"),
    ("{{ maps }}", "Equals", "{{ maps }}"),
    ("1h1m1s1ms1us", "GreaterThan", "1h1m"),
)


def cost(work: Callable[[Allowance], object], least: float = 0.01) -> float:
    """Return the nanoseconds per step: the best of three runs, each long enough for the clock."""
    found = []
    for _ in range(3):
        allowance = Allowance()
        before, begun, passed = allowance.left, time.process_time(), 0.0
        while passed < least:
            work(allowance)
            passed = time.process_time() - begun
        found.append(passed / (before - allowance.left) * 1e9)
    return min(found)


def evaluating(source: str) -> Callable[[Allowance], object]:
    expression = compile_expression(source)
    return lambda allowance: expression.search(DATA, allowance)


def in_everyday_steps(work: Callable[[Allowance], object]) -> float:
    """Return the time of a step as a multiple of the time of an everyday step.

    The speed of a machine changes within minutes, so both are measured one right after the other,
    and up to three times until the result is below the limit.
    """
    found = float("inf")
    for _ in range(3):
        costs = [cost(evaluating(source), least=0.003) for source in EVERYDAY]
        found = min(found, cost(work) * len(costs) / sum(costs))
        if found < MOST:
            break
    return found


@pytest.mark.parametrize("source", [*(f"map(&{call}, texts)" for call in CALLS), *WHOLE])
def test_no_function_takes_much_more_time_than_its_steps_stand_for(source: str) -> None:
    assert in_everyday_steps(evaluating(source)) < MOST


@pytest.mark.parametrize(("key", "operator", "value"), CONDITIONS)
def test_no_comparison_takes_much_more_time_than_its_steps_stand_for(
    key: str, operator: str, value: Any
) -> None:
    raw = {"all": [{"key": key, "operator": operator, "value": value}]}
    conditions = compile_conditions(raw, location="here")
    known = Context(DATA)
    assert in_everyday_steps(lambda steps: conditions.evaluate(known.within(steps))) < MOST


WIDE = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "wide"},
    "data": {
        "map": {f"k{number}": "v" for number in range(2_000)},
        "list": [{"name": f"n{number}", "v": 1} for number in range(500)],
    },
}
FOREACHES = (
    {"patchStrategicMerge": {"data": {"x": "{{ element }}"}}},
    {"patchStrategicMerge": {"data": {"map": {"k{{ element }}": "{{ element }}"}}}},
    {"patchStrategicMerge": {"data": {"list": [{"(name)": "*x", "v": 2}]}}},
    {"patchesJson6902": '[{"op": "add", "path": "/data/map/x{{ element }}", "value": "x"}]'},
    {"foreach": [{"list": "`[1, 2, 3]`", "patchStrategicMerge": {"data": {"x": "y"}}}]},
)


@pytest.mark.parametrize("edit", FOREACHES)
def test_no_foreach_takes_much_more_time_than_its_steps_stand_for(edit: Object) -> None:
    foreach = {"list": f"`{list(range(20))}`", **edit}
    (program,) = make_index(make_mutating(mutate={"foreach": [foreach]})).policies()[0].programs
    context = Context({"request": {"object": WIDE}})

    def work(steps: Allowance) -> None:
        program.mutation.apply(None, context.within(steps), WIDE, SHIPPED)

    assert in_everyday_steps(work) < MOST


def test_every_function_is_measured() -> None:
    measured = " ".join((*CALLS, *WHOLE))
    assert {name for name in REGISTRY if f"{name}(" not in measured} == set()
