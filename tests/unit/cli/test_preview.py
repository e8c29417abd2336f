"""`retrofit preview` without a cluster: its report, the values that it masks, and its errors."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import Object, PolicyRef
from reconciler.api.updaterequest import Outcome
from reconciler.cli.desk.inputs import read_exceptions
from reconciler.cli.desk.progress import Bar
from reconciler.cli.main import retrofit
from reconciler.cli.output.masking import Mask
from reconciler.cli.output.screen import Screen
from reconciler.cli.output.terminal import styled
from reconciler.cli.preview.baseline import compare, read_baseline, write_baseline
from reconciler.cli.preview.data import data_of
from reconciler.cli.preview.policies import (
    compile_found,
    read_stored,
    split_names,
)
from reconciler.cli.preview.report import Report, lines_of, place_of
from reconciler.cli.preview.rule_summary import RuleSummary, Verdict
from reconciler.cli.preview.secrets import WatchedLoader
from reconciler.dialects.registry import compile_policy
from reconciler.engine.loads import ApiLoad, Load
from reconciler.engine.program import Program
from reconciler.errors import InvalidSetting, NoKindMatch, NotFound
from reconciler.installation import REPLACING
from reconciler.services.preview.dryrun import Identity, Write
from reconciler.services.preview.preview import Chunk, Seen, Touch
from tests.unit.cli.nowhere import KUBECONFIG

POLICY = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "reload"},
    "spec": {
        "rules": [
            {
                "name": "stamp",
                "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
                "mutate": {
                    "targets": [{"apiVersion": "v1", "kind": "Secret", "namespace": "shop"}],
                    "patchStrategicMerge": {"metadata": {"labels": {"x": "1"}}},
                },
            }
        ]
    },
}


def program() -> Program:
    return compile_policy(POLICY).programs[0]


def config_map(name: str, **data: str) -> Object:
    meta = {"name": name, "namespace": "shop", "managedFields": [{"manager": "somebody"}]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def secret(name: str, **data: str) -> Object:
    encoded = {key: b64encode(value.encode()).decode() for key, value in data.items()}
    return {**config_map(name), "kind": "Secret", "data": encoded}


def key(kind: str, name: str) -> Identity:
    return "v1", kind, "shop", name, ""


def touch(name: str, outcome: Outcome, message: str = "", *, refused: bool = False) -> Touch:
    return Touch(target=key("ConfigMap", name), outcome=outcome, message=message, refused=refused)


def patched(trigger: Object, *names: str, repeats: bool = False) -> Chunk:
    """Return the result of a trigger that changes the named ConfigMaps."""
    writes = {
        key("ConfigMap", name): Write(
            before=config_map(name, mode="lax"),
            after=config_map(name, mode="strict"),
            repeats=repeats,
        )
        for name in names
    }
    touches = tuple(touch(name, Outcome.PATCHED) for name in names)
    return Chunk(read=1, seen=(Seen(trigger=trigger, touches=touches),), writes=writes)


def rule_summary(*chunks: Chunk, limit: int = 20, mask: Mask | None = None) -> RuleSummary:
    found = RuleSummary(program=program(), operation="UPDATE", limit=limit)
    for chunk in chunks:
        found.add(chunk, mask or Mask())
    return found


def report(*rules: RuleSummary, **facts: Any) -> Report:
    given: dict[str, Any] = {
        "server": "https://here",
        "tried": True,
        "permissions": (),
        "difference": None,
        "calls": 7,
        "seconds": 1.25,
        **facts,
    }
    return Report(rules=rules, **given)


def text_of(*rules: RuleSummary, **facts: Any) -> str:
    return "\n".join(lines_of(report(*rules, **facts), Screen()))


def run(*words: str) -> Result:
    done = CliRunner().invoke(retrofit, ["preview", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def test_counts_are_shown_before_the_diffs() -> None:
    found = text_of(rule_summary(patched(config_map("settings"), "web"), Chunk(read=2)))
    table, counts, empty, summary, *rest = found.splitlines()
    # Outcomes that did not occur have no column.
    assert table.split()[2:] == ["ON", "TRIGGERS", "TARGETS", "CHANGED", "UNCHANGED"]
    assert counts.split() == ["reload", "stamp", "UPDATE", "1", "1", "1", "-"]
    assert empty == ""
    assert summary == (
        "3 objects looked at, 1 object would be changed; nothing was written"
        " (7 requests to https://here, 1.2s)"
    )
    assert rest == [
        "",
        "== reload / stamp ==",
        "",
        "ConfigMap shop/web, triggered by ConfigMap shop/settings",
        "--- ConfigMap shop/web",
        "+++ ConfigMap shop/web",
        "@@ -4,4 +4,4 @@",
        "   name: web",
        "   namespace: shop",
        " data:",
        "-  mode: lax",
        "+  mode: strict",
    ]


def test_colours_are_used_only_on_a_coloured_screen() -> None:
    whole = report(rule_summary(patched(config_map("settings"), "web")))
    coloured = list(lines_of(whole, Screen(coloured=True)))
    assert styled("\x1b[32m+  mode: strict\x1b[0m") in coloured
    assert "\x1b" not in "".join(lines_of(whole, Screen()))


def test_changes_and_problems_above_the_limit_are_counted() -> None:
    chunks = [patched(config_map(f"s{n}"), f"web{n}") for n in range(5)]
    errors = tuple(touch(f"bad{n}", Outcome.FAILED, f"fault {n}") for n in range(4))
    chunks.append(Chunk(read=1, seen=(Seen(trigger=config_map("t"), touches=errors),)))
    found = rule_summary(*chunks, limit=2)
    text = text_of(found)
    assert (found.count(Verdict.CHANGED), len(found.shown)) == (5, 2)
    assert text.endswith("3 changes and 2 problems more: --limit 0 shows all")
    assert text.count("\n+++ ") == 2
    everything = text_of(rule_summary(*chunks, limit=0))
    assert everything.count("\n+++ ") == 5
    assert "--limit" not in everything


def test_a_target_of_several_triggers_is_counted_once() -> None:
    unchanged = Seen(trigger=config_map("b"), touches=(touch("web", Outcome.UNCHANGED),))
    found = rule_summary(
        patched(config_map("a"), "web"),
        Chunk(read=1, seen=(unchanged,)),
        patched(config_map("c"), "web"),
    )
    assert (found.triggers, found.count(Verdict.CHANGED), len(found.verdicts)) == (3, 1, 1)
    assert "triggered by ConfigMap shop/a and 1 more" in text_of(found)


def test_a_refusal_for_one_trigger_is_reported_for_the_target() -> None:
    refused = touch("web", Outcome.INVALID, "field is immutable", refused=True)
    chunk = Chunk(read=1, seen=(Seen(trigger=config_map("b"), touches=(refused,)),))
    found = rule_summary(patched(config_map("a"), "web"), chunk)
    assert (found.count(Verdict.CHANGED), found.count(Verdict.REFUSED)) == (0, 1)
    assert found.changed == set()
    text = text_of(found)
    assert "refused: ConfigMap shop/web, triggered by ConfigMap shop/b: field is immutable" in text
    assert "+++" not in text
    assert report(found).refused == 1
    assert not report(found).incomplete


def test_errors_without_a_target_and_unreadable_lists_are_reported() -> None:
    seen = Seen(trigger=config_map("a"), errors=("no such variable",))
    found = rule_summary(Chunk(read=1, seen=(seen,)), Chunk(failure="list configmaps: forbidden"))
    text = text_of(found, permissions=["list configmaps"])
    assert "error: triggered by ConfigMap shop/a: no such variable" in text
    assert "not read: list configmaps: forbidden" in text
    assert "Missing permissions, what they hide is not counted:\n  list configmaps\n" in text
    assert "-n NAMESPACE" in text
    assert report(found).incomplete


def test_a_reason_shared_by_many_triggers_is_reported_once() -> None:
    chunks = [
        Chunk(seen=(Seen(trigger=config_map(f"a{n}"), errors=("no such variable",)),))
        for n in range(5)
    ]
    refused = [touch(f"web{n}", Outcome.DENIED, "no", refused=True) for n in range(2)]
    chunks.append(Chunk(seen=(Seen(trigger=config_map("b"), touches=tuple(refused)),)))
    text = text_of(rule_summary(*chunks))
    assert text.count("no such variable") == 1
    names = "ConfigMap shop/a0, ConfigMap shop/a1, ConfigMap shop/a2 and 2 more"
    assert f"error (5 times): triggered by {names}: no such variable\n" in text
    assert "refused (2 times): ConfigMap shop/web0, ConfigMap shop/web1: no" in text


def test_reasons_for_skipping_are_counted_and_their_number_is_limited() -> None:
    chunks = [
        Chunk(seen=(Seen(trigger=config_map(f"a{n}"), unmet=f"reason {n}"),)) for n in range(90)
    ]
    skipped = Seen(trigger=config_map("b"), touches=(touch("web", Outcome.SKIPPED, "not now"),))
    found = rule_summary(*chunks, Chunk(seen=(skipped,)))
    assert len(found.unmet) <= 51
    text = text_of(found)
    assert "match, but no trigger (1): reason 0" in text
    assert "match, but no trigger (87): for other reasons" in text
    assert "targets skipped (1): not now" in text


def test_a_rule_that_does_not_converge_is_reported() -> None:
    text = text_of(rule_summary(patched(config_map("a"), "web", repeats=True)))
    assert "the rule does not settle" in text


def test_without_a_server_dry_run_a_hint_is_shown() -> None:
    rule = rule_summary(patched(config_map("a"), "web"))
    assert "--server-dry-run" in text_of(rule, tried=False)
    assert "--server-dry-run" not in text_of(rule, tried=True)


def test_the_content_of_secrets_is_not_shown() -> None:
    target = key("Secret", "s")
    write = Write(before=secret("s", a="old-word"), after=secret("s", a="new-word"), repeats=False)
    done = Touch(target=target, outcome=Outcome.PATCHED, message="", refused=False)
    seen = Seen(trigger=config_map("a"), touches=(done,))
    found = rule_summary(Chunk(seen=(seen,), writes={target: write}))
    text = text_of(found) + json.dumps(data_of(report(found)))
    assert "*** (old)" in text
    for word in ("old-word", "new-word", b64encode(b"new-word").decode()):
        assert word not in text


def test_data_that_a_rule_copies_from_a_secret_is_not_shown() -> None:
    target = key("ConfigMap", "web")
    write = Write(
        before=config_map("web"),
        after=config_map("web", a="sesame", b=f"x{b64encode(b'sesame').decode()}y"),
        repeats=False,
    )
    failed = touch("bad", Outcome.FAILED, "cannot use sesame")
    touches = (touch("web", Outcome.PATCHED), failed)
    seen = Seen(trigger=secret("s", word="sesame"), touches=touches, errors=("no sesame",))
    found = rule_summary(Chunk(seen=(seen,), writes={target: write}))
    text = text_of(found) + json.dumps(data_of(report(found)))
    assert "sesame" not in text
    assert b64encode(b"sesame").decode() not in text
    assert "cannot use ***" in text


async def test_data_that_an_entry_reads_from_secrets_is_masked() -> None:
    class Loader:
        def acting_as(self, _account: ServiceAccount | None) -> Self:
            return self

        async def load(self, load: Load) -> Any:
            assert isinstance(load, ApiLoad)
            return {"kind": "SecretList", "items": [{"data": secret("s", a="sesame")["data"]}]}

    watched = WatchedLoader(Loader())
    await watched.load(ApiLoad(method="GET", path="/api/v1/secrets"))
    assert watched.mask.text("open sesame") == "open ***"


def test_structured_output_contains_counts_changes_and_problems() -> None:
    refused = touch("bad", Outcome.DENIED, "no", refused=True)
    chunk = Chunk(read=1, seen=(Seen(trigger=config_map("b"), touches=(refused,)),))
    data = data_of(report(rule_summary(patched(config_map("a"), "web"), chunk)))
    (rule,) = data["rules"]
    assert rule["counts"] == {
        "read": 2,
        "triggers": 2,
        "targets": 2,
        "skipped": 0,
        "unchanged": 0,
        "missing": 0,
        "changed": 1,
        "error": 0,
        "refused": 1,
    }
    (change,) = rule["changes"]
    assert change["target"]["name"] == "web"
    assert change["patch"] == [{"op": "replace", "path": "/data/mode", "value": "strict"}]
    (problem,) = rule["problems"]
    assert (problem["verdict"], problem["message"]) == ("refused", "no")


def test_a_written_baseline_is_read_unchanged(tmp_path: Path) -> None:
    name = str(tmp_path / "touched.yaml")
    targets = {key("ConfigMap", "b"), ("apps/v1", "Deployment", "shop", "web", "scale")}
    write_baseline(name, targets)
    assert read_baseline(name) == targets
    assert not compare(read_baseline(name), targets)


def test_the_difference_from_a_baseline_is_reported() -> None:
    difference = compare({key("ConfigMap", "a")}, {key("ConfigMap", "b")})
    assert difference
    text = text_of(rule_summary(), difference=difference)
    assert "- ConfigMap shop/a: would not be changed" in text
    assert "+ ConfigMap shop/b: is not in the baseline" in text
    assert "As in the baseline" in text_of(rule_summary(), difference=compare(set(), set()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Other", "expected one document of kind PreviewBaseline"),
        ("kind: PreviewBaseline\nobjects: {}", "objects must be a list"),
        ("kind: PreviewBaseline\nobjects: [a]", r"objects\[0\]: expected a map"),
        ("kind: PreviewBaseline\nobjects: [{kind: A, name: b}]", "apiVersion is missing"),
        ("kind: PreviewBaseline\nobjects: [{nam: b}]", r"objects\[0\].nam"),
        ("kind: PreviewBaseline\nobjects: [{name: 1}]", r"objects\[0\].name"),
    ],
)
def test_an_invalid_baseline_is_refused_with_its_place(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "touched.yaml"
    path.write_text(text)
    with pytest.raises(InvalidSetting, match=said):
        read_baseline(str(path))


def test_an_empty_baseline_is_read_as_an_empty_set(tmp_path: Path) -> None:
    name = str(tmp_path / "touched.yaml")
    write_baseline(name, [])
    assert read_baseline(name) == frozenset()


def test_arguments_are_split_into_files_and_names_of_stored_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["p.yaml", "clusterpolicy/a", "cpol/b", "policy/shop/c", "pol/shop/d", "x/y.yaml"]
    assert split_names(names) == (["p.yaml", "x/y.yaml"], ["a", "b", "shop/c", "shop/d"])
    assert split_names(["e", "shop/f", "-", "x/*", "a/b/c"]) == (
        ["-", "x/*", "a/b/c"],
        ["e", "shop/f"],
    )
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy/a.yaml").touch()
    assert split_names(["policy/a.yaml"]) == (["policy/a.yaml"], [])
    with pytest.raises(InvalidSetting, match="policy/NAMESPACE/NAME"):
        split_names(["policy/b"])


@pytest.mark.parametrize("text", ["", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"])
def test_a_file_without_a_policy_is_reported_as_such(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    done = run(str(path))
    assert (done.exit_code, done.stderr) == (2, f"Error: {path}: no policy found\n")


async def test_a_missing_stored_policy_is_reported_in_one_line() -> None:
    class Policies:
        async def get(self, ref: PolicyRef) -> Object:
            raise (NotFound if ref.key == "a" else NoKindMatch)("404", status=404)

        async def stored(self) -> tuple[Object, ...]:
            raise AssertionError

        async def write_status(self, policy: Object, status: Any) -> None:
            raise AssertionError

    with pytest.raises(
        InvalidSetting, match=r"^policy a: the cluster does not have it, and no file has this"
    ):
        await read_stored(["a"], Policies(), REPLACING)
    with pytest.raises(InvalidSetting, match=r"^policy b: the cluster knows no policies"):
        await read_stored(["b"], Policies(), REPLACING)


def test_an_invalid_exception_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "exception.yaml"
    path.write_text(
        "apiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {name: e}\nspec: {}\n"
    )
    with pytest.raises(InvalidSetting, match=r"exception.yaml:1: spec"):
        read_exceptions([str(path)])


def test_an_invalid_policy_does_not_stop_the_others() -> None:
    broken = {**POLICY, "spec": {"rules": [{"name": "r", "mutate": {"targets": [{}]}}]}}
    chosen = compile_found([("a.yaml:1", broken), ("b.yaml:1", POLICY)])
    assert [item.key for item in chosen.compiled] == ["reload"]
    (text,) = chosen.refused
    assert text.startswith("a.yaml:1: ClusterPolicy reload: spec.rules[0]")
    assert report(refusals=chosen.refused).incomplete


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--baseline", "a", "--write-baseline", "b"], "give one of them"),
        (["--limit", "-1"], "--limit"),
        (["--operation", "POLICY-UPDATE", "-u", "u.yaml"], "there is no request"),
        (["-o", "diff"], "'diff' is not one of"),
        (["-", "--exception", "-"], "can be read once only"),
    ],
)
def test_invalid_or_incompatible_flags_are_refused(words: list[str], said: str) -> None:
    done = run("policy.yaml", *words)
    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.parametrize("command", [["preview"], ["apply", "--cluster"]])
def test_an_unreachable_cluster_is_reported_in_one_line(
    tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    (tmp_path / "policy.json").write_text(json.dumps(POLICY))
    words = [str(tmp_path / "policy.json"), "--kubeconfig", str(tmp_path / "kubeconfig")]
    done = CliRunner().invoke(retrofit, [*command, *words])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr == (
        "Error: the API server at http://127.0.0.1:1 does not answer (connection refused);"
        " this is the current context: name another with --context or --kubeconfig\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kubeconfig", "none"], "there is no kubeconfig none"),
        (["--kubeconfig", "kubeconfig", "--context", "b"], "it has no context b: name another"),
        (["--kubeconfig", "kubeconfig", "--as", "a\nb"], r"--as 'a\nb'"),
    ],
)
def test_an_invalid_kubeconfig_context_or_user_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kubeconfig").write_text(KUBECONFIG)
    Path("policy.json").write_text(json.dumps(POLICY))
    done = run("policy.json", *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_place_of_a_target_shows_its_subresource() -> None:
    assert place_of(("v1", "Node", "", "n", "status")) == "Node n (status)"


def test_a_progress_bar_is_not_shown_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Bar() as bar:
        bar.begin("reload / stamp")
        bar.advance(1, 3)
    assert capsys.readouterr() == ("", "")
