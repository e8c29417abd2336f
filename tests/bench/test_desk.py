"""The checks of the bench of the command line, on a small scale."""

from pathlib import Path

from tests.bench.desk import apply, evaluation


def test_many_objects_need_hardly_more_memory_than_few(tmp_path: Path) -> None:
    few, many = apply(100, tmp_path), apply(3000, tmp_path)
    assert many.peak < 1.3 * few.peak


def test_the_rule_of_the_bench_is_evaluated() -> None:
    assert 0 < evaluation(50).p50 <= evaluation(50).p99 * 50
