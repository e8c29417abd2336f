"""The bench of the other languages measures rules that change something."""

from tests.bench import languages


def test_every_measured_rule_takes_time() -> None:
    costs = [*languages.mod_rules(), *languages.kinitiras()]
    assert len(costs) == 5
    assert all(cost.seconds > 0 for cost in costs)
    assert len(languages.table(costs, "all").rows) == 5
