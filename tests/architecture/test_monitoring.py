"""Metrics, their reference, the dashboard and the alerts agree on names and labels."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from reconciler.observe.labels import Series
from reconciler.observe.metrics import Metrics
from tests.architecture.conftest import ROOT, sources

REFERENCE = ROOT / "docs/reference/metrics.md"
HOW_TO = ROOT / "docs/how-to/monitor.md"
MONITORING = ROOT / "manifests/monitoring"
ROW = re.compile(r"^\| `(retrofit_\w+)` \| ((?:`\w+`(?:, )?)*) *\|", re.MULTILINE)
NAME = re.compile(r"retrofit_\w+")
HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


def metrics() -> Iterator[tuple[str, str, Counter | Gauge | Histogram]]:
    """Yield field, exposed name and metric."""
    for field, found in vars(Metrics()).items():
        metric = found.metric if isinstance(found, Series) else found
        if isinstance(metric, Counter | Gauge | Histogram):
            suffix = "_total" if isinstance(metric, Counter) else ""
            (described,) = metric.describe()
            yield field, f"{described.name}{suffix}", metric


def labels() -> dict[str, set[str]]:
    # The library has no other way to read the labels of a metric that has no values yet.
    return {name: set(metric._labelnames) for _, name, metric in metrics()}  # noqa: SLF001


def known() -> dict[str, set[str]]:
    """Return the names that an expression may use, with their labels."""
    found: dict[str, set[str]] = {}
    labelled = labels()
    for _, name, metric in metrics():
        names = labelled[name]
        if isinstance(metric, Histogram):
            found |= {f"{name}{part}": {*names, "le"} for part in HISTOGRAM_PARTS}
        else:
            found[name] = names
    return found


def dashboard() -> list[str]:
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def alerts() -> list[dict[str, Any]]:
    rule = yaml.safe_load((MONITORING / "operator/alerts.yaml").read_text())
    return [item for group in rule["spec"]["groups"] for item in group["rules"]]


def expressions() -> list[str]:
    return [*dashboard(), *(item["expr"] for item in alerts())]


def test_every_metric_is_documented_with_its_labels() -> None:
    rows = ROW.findall(REFERENCE.read_text())
    assert len(rows) == len(dict(rows))
    assert {name: set(re.findall(r"\w+", cell)) for name, cell in rows} == labels()


def test_every_metric_is_set_somewhere() -> None:
    code = "".join(
        path.read_text()
        for path in sources(
            "reconciler/controller", "reconciler/observe", "reconciler/serving", "admission"
        )
    )
    assert [field for field, *_ in metrics() if f"metrics.{field}" not in code] == []


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_names_metrics_and_labels_that_exist(expression: str) -> None:
    there = known()
    used = NAME.findall(expression)
    assert used
    assert set(used) - set(there) == set()
    allowed = set[str]().union(*(there[name] for name in used))
    asked = {
        label
        for group in re.findall(r"\bby \(([^)]*)\)", expression)
        for label in re.findall(r"\w+", group)
    }
    asked |= set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", expression))
    assert asked - allowed == set()
    assert expression.count("(") == expression.count(")")


def test_an_expression_on_an_unknown_metric_or_label_would_be_found() -> None:
    with pytest.raises(AssertionError):
        test_an_expression_names_metrics_and_labels_that_exist("sum(retrofit_gone_total)")
    with pytest.raises(AssertionError):
        test_an_expression_names_metrics_and_labels_that_exist("sum by (x) (retrofit_leader)")


def test_a_critical_alert_on_a_counter_sees_the_first_event() -> None:
    """A series with labels begins with its first event, and increase() counts only later ones."""
    critical = [item["expr"] for item in alerts() if item["labels"]["severity"] == "critical"]
    counted = [(expr, re.findall(r"increase\((\w+)\[(\w+)\]\)", expr)) for expr in critical]
    assert [found for _, found in counted if found]
    for expr, found in counted:
        for name, period in found:
            first = f"{name} unless {name} offset {period}"
            assert f"increase({name}[{period}]) > 0 or {first}" in expr


def test_the_smallest_value_of_a_gauge_leaves_out_programs_that_never_set_it() -> None:
    """The programs share one list of metrics, and a gauge without labels begins at zero."""
    smallest = [expression for expression in expressions() if "min(" in expression]
    assert smallest
    assert [text for text in smallest if not re.search(r"\bmin\(\w+ > 0\)", text)] == []


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {name for expression in dashboard() for name in NAME.findall(expression)}
    for part in HISTOGRAM_PARTS:
        shown |= {name.removesuffix(part) for name in shown}
    assert set(labels()) - shown == set()


def test_every_alert_is_explained() -> None:
    text = HOW_TO.read_text()
    names = [item["alert"] for item in alerts()]
    assert len(names) == len(set(names))
    assert [name for name in names if f"`{name}`" not in text] == []


def test_metrics_named_in_other_documents_exist() -> None:
    there = {*known(), *labels()}
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        named = set(re.findall(r"`(retrofit_\w+?)(?:\{[\w,]*\})?`", document.read_text()))
        assert named - there == set(), document
