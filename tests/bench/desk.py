"""Measures the engine and the command line: a rule on one object, `apply` on many, the start.

Only ratios within one run are checked; seconds depend on the machine and are just printed.
"""

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console
from rich.table import Table

from reconciler.dialects.registry import compile_policy
from reconciler.engine.context import request_context
from reconciler.engine.evaluate import change, decide
from reconciler.engine.match import Subject
from reconciler.engine.outcome import RuleStatus
from tests.bench.figures import Spread

_PROGRESS = Console(stderr=True)
_ROUNDS = 5_000
_STARTS = 5
# A process inherits the peak memory of the process that forked it, so the launcher must be small.
_LAUNCHER = """
import json, os, sys, time
began = time.monotonic()
child = os.fork()
if not child:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    os.execv(sys.argv[1], sys.argv[1:])
_, ended, used = os.wait4(child, 0)
wall = time.monotonic() - began
cpu = used.ru_utime + used.ru_stime
print(json.dumps([os.waitstatus_to_exitcode(ended), wall, cpu, used.ru_maxrss]))
"""
_LINEAR = 1.5
_FLAT = 1.5
RETROFIT = Path(sys.executable).with_name("retrofit")

POLICY: dict[str, Any] = yaml.safe_load("""
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: bench}
spec:
  rules:
  - name: bench
    match: {any: [{resources: {kinds: [Deployment], namespaces: ["shop-*"]}}]}
    mutate:
      patchStrategicMerge:
        metadata:
          labels:
            owner: "{{ request.object.metadata.namespace }}"
        spec:
          template:
            spec:
              containers:
              - (name): "*"
                imagePullPolicy: "{{ request.object.spec.policy || 'IfNotPresent' }}"
""")
_TARGET = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "name": "{{ request.object.metadata.name }}",
    "namespace": "{{ request.object.metadata.namespace }}",
}
_DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web-{number}
  namespace: shop-{shop}
  labels:
    app: web-{number}
    tier: front
  annotations:
    deployment.kubernetes.io/revision: "1"
spec:
  replicas: 3
  selector:
    matchLabels:
      app: web-{number}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 25%
      maxUnavailable: 0
  template:
    metadata:
      labels:
        app: web-{number}
    spec:
      serviceAccountName: web
      containers:
      - name: web
        image: registry.example/shop/web:1.{shop}
        args: ["--port=8080", "--verbose"]
        ports:
        - containerPort: 8080
          protocol: TCP
        env:
        - name: MODE
          value: "production"
        - name: NUMBER
          value: "{number}"
        resources:
          requests:
            cpu: 100m
            memory: 128Mi
          limits:
            memory: 256Mi
        readinessProbe:
          httpGet:
            path: /ready
            port: 8080
          periodSeconds: 10
      - name: proxy
        image: registry.example/proxy:2
      volumes:
      - name: config
        configMap:
          name: web-{number}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The resources that one process used.

    Attributes:
        wall: Seconds of wall-clock time.
        cpu: CPU seconds of all its threads.
        peak: Peak of resident bytes.
    """

    wall: float
    cpu: float
    peak: int


def evaluation(rounds: int = _ROUNDS) -> Spread:
    """Return the CPU seconds of a rule on one Deployment: match, two variables, merge."""
    policy = {**POLICY, "spec": {"rules": [{**POLICY["spec"]["rules"][0]}]}}
    rule = policy["spec"]["rules"][0]
    rule["mutate"] = {"targets": [_TARGET], **rule["mutate"]}
    program = compile_policy(policy).programs[0]
    obj = yaml.safe_load(deployment(1))
    subject = Subject(
        group="apps",
        version="v1",
        kind="Deployment",
        name="web-1",
        namespace="shop-1",
        obj=obj,
        operation="CREATE",
    )

    def work() -> None:
        context = request_context(
            operation="CREATE",
            obj=obj,
            old_object=None,
            name="web-1",
            namespace="shop-1",
            kind=("apps", "v1", "Deployment"),
            user_info=None,
        )
        context = program.binding.bind(context)
        fired = decide(program, program.match.evaluate(subject), context).fires
        if not fired or change(program, 0, context, obj).status is not RuleStatus.PASS:
            raise click.ClickException("the rule of the benchmark changes nothing")

    return _timed(work, rounds)


def deployment(number: int) -> str:
    """Return the YAML of one Deployment."""
    return _DEPLOYMENT.format(number=number, shop=number % 7)


def apply(count: int, folder: Path, *, output: str = "diff") -> Use:
    """Run `retrofit apply` on ``count`` objects in one file."""
    policy, objects = folder / "policy.yaml", folder / f"objects-{count}.yaml"
    policy.write_text(yaml.safe_dump(POLICY))
    if not objects.exists():
        with objects.open("w") as file:
            file.writelines(f"---\n{deployment(number)}" for number in range(count))
    return run("apply", str(policy), "--resource", str(objects), "--output", output)


def run(*words: str) -> Use:
    """Run a `retrofit` command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", _LAUNCHER, str(RETROFIT), *words],
        stdout=subprocess.PIPE,
        check=True,
    )
    status, wall, cpu, peak = json.loads(done.stdout)
    if status:
        raise click.ClickException(f"retrofit {' '.join(words)} ended with {status}")
    return Use(wall=wall, cpu=cpu, peak=peak * 1024)


def _timed(work: Callable[[], None], rounds: int) -> Spread:
    work()
    taken: list[float] = []
    gc.collect()
    for _ in range(rounds):
        # CPU time of this thread only, without other work of the machine.
        began = time.thread_time()
        work()
        taken.append(time.thread_time() - began)
    return Spread.of(taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskFigures:
    """All figures of a run; `broken` describes the ratios that do not hold."""

    start: float
    uses: dict[tuple[str, int], Use]
    broken: tuple[str, ...]


def desk(counts: Sequence[int], folder: Path) -> DeskFigures:
    """Measure the start of the command line, and one policy on each number of objects."""
    _PROGRESS.print("retrofit --help")
    start = min(run("--help").cpu for _ in range(_STARTS))
    uses: dict[tuple[str, int], Use] = {}
    for output in ("diff", "yaml"):
        for count in counts:
            _PROGRESS.print(f"retrofit apply --output {output}, {count} objects")
            uses[output, count] = apply(count, folder, output=output)
    return DeskFigures(start=start, uses=uses, broken=tuple(_broken(uses, counts)))


def _broken(uses: dict[tuple[str, int], Use], counts: Sequence[int]) -> Iterator[str]:
    first, last = counts[0], counts[-1]
    for output in ("diff", "yaml"):
        few, many = uses[output, first], uses[output, last]
        grown = many.cpu / few.cpu
        if grown > _LINEAR * last / first:
            yield f"{output}: {last / first:g} times the objects took {grown:.1f} times the CPU"
    few, many = uses["diff", first], uses["diff", last]
    if many.peak > _FLAT * few.peak:
        yield f"diff: {last} objects took {many.peak / few.peak:.1f} times the memory of {first}"


def engine_table(spread: Spread) -> Table:
    """Return the table of the engine."""
    table = Table("engine", "p50", "p99", title="Match, two variables, strategic merge")
    table.add_row("one Deployment", f"{spread.p50 * 1e6:.0f} µs", f"{spread.p99 * 1e6:.0f} µs")
    return table


def desk_table(figures: DeskFigures) -> Table:
    """Return the table of the command line."""
    table = Table("command", "seconds", "CPU seconds", "peak", title="Desk")
    table.add_row("retrofit --help", "", f"{figures.start:.2f}", "")
    for (output, count), use in figures.uses.items():
        row = (f"{use.wall:.1f}", f"{use.cpu:.1f}", f"{use.peak / 1e6:.0f} MB")
        table.add_row(f"retrofit apply --output {output}, {count} objects", *row)
    return table
