"""The bench of the other languages measures rules that change something."""

from tests.bench import languages


def test_what_is_measured_costs_something() -> None:
    costs = [*languages.mod_rules(), *languages.kinitiras()]
    assert len(costs) == 5
    assert all(cost.seconds > 0 for cost in costs)
    assert len(languages.table(costs, "all").rows) == 5
