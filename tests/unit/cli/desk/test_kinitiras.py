"""Policies of kinitiras on the command line."""

from pathlib import Path

import pytest

from tests.unit.cli.desk.conftest import Desk

POLICIES = """
apiVersion: policy.kcloudlabs.io/v1alpha1
kind: ClusterOverridePolicy
metadata: {name: owner}
spec:
  resourceSelectors:
  - {apiVersion: v1, kind: ConfigMap}
  overrideRules:
  - overriders:
      template:
        type: annotations
        operation: add
        path: example.com/owner
        value: {string: blue}
---
apiVersion: policy.kcloudlabs.io/v1alpha1
kind: ClusterValidatePolicy
metadata: {name: small}
spec:
  resourceSelectors:
  - {apiVersion: v1, kind: ConfigMap}
  validateRules:
  - template:
      type: condition
      condition:
        cond: Equal
        message: no large ones
        dataRef: {from: current, path: /data/size}
        value: {string: large}
"""
OBJECT = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {kinitiras.kcloudlabs.io/webhook: enabled}
data: {size: large}
"""


@pytest.fixture
def files(desk: Desk) -> Desk:
    desk.write("policies.yaml", POLICIES)
    desk.write("object.yaml", OBJECT)
    return desk


def test_apply_shows_the_change_and_the_refusal(files: Desk) -> None:
    done = files.run("apply", "policies.yaml", "-r", "object.yaml")
    assert done.exit_code == 1
    assert "example.com/owner: blue" in done.stdout
    assert "rejected: ConfigMap default/settings: small: no large ones" in done.stderr


def test_apply_succeeds_if_nothing_is_refused(files: Desk) -> None:
    files.write("object.yaml", OBJECT.replace("large", "tiny"))
    done = files.run("apply", "policies.yaml", "-r", "object.yaml")
    assert done.exit_code == 0
    assert "pass: 1, fail: 0, warn: 0, error: 0, skip: 1" in done.stderr


def test_an_object_without_the_label_is_skipped(files: Desk) -> None:
    files.write("object.yaml", OBJECT.replace("enabled", "disabled"))
    done = files.run("apply", "policies.yaml", "-r", "object.yaml", "-v")
    assert done.exit_code == 0
    assert "it has no label kinitiras.kcloudlabs.io/webhook: enabled" in done.stderr
    every = POLICIES.replace(
        "metadata: {", "metadata: {annotations: {kube-retrofit.dev/objects: all}, "
    )
    files.write("policies.yaml", every)
    assert files.run("lint", "--strict", "policies.yaml").exit_code == 0
    assert "owner: blue" in files.run("apply", "policies.yaml", "-r", "object.yaml").stdout


def test_lint_names_the_place_in_the_file(files: Desk) -> None:
    files.write("policies.yaml", POLICIES.replace("cond: Equal", "cond: Like"))
    done = files.run("lint", "policies.yaml")
    assert done.exit_code == 1
    assert "expected one of Equal" in done.stdout
    files.write("policies.yaml", POLICIES)
    assert files.run("lint", "policies.yaml").exit_code == 0


REFERENCES = """
apiVersion: policy.kcloudlabs.io/v1alpha1
kind: ClusterOverridePolicy
metadata: {name: team}
spec:
  resourceSelectors:
  - {apiVersion: v1, kind: Pod}
  overrideRules:
  - overriders:
      template:
        type: labels
        operation: add
        path: team
        valueRef: {from: owner, path: /metadata/labels/team}
  - overriders:
      template:
        type: annotations
        operation: add
        path: color
        valueRef:
          from: k8s
          path: /data/color
          k8s:
            apiVersion: v1
            kind: ConfigMap
            labelSelector: {matchLabels: {team: "{{metadata.labels.team}}"}}
  - overriders:
      template:
        type: annotations
        operation: add
        path: mail
        valueRef:
          from: http
          path: data.mail
          http: {url: "http://teams.shop.svc/{{metadata.labels.team}}"}
"""
POD = """
apiVersion: v1
kind: Pod
metadata:
  name: web-1
  namespace: shop
  labels: {kinitiras.kcloudlabs.io/webhook: enabled}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u}]
spec: {containers: [{name: a, image: b}]}
"""
OTHERS = """
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web, namespace: shop, labels: {team: blue}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: shop, labels: {team: blue}}
data: {color: red}
"""


@pytest.fixture
def references(desk: Desk) -> Desk:
    desk.write("policies.yaml", REFERENCES)
    desk.write("pod.yaml", POD)
    desk.write("others.yaml", OTHERS)
    return desk


def test_references_are_read_from_files_and_services_from_values(references: Desk) -> None:
    files = ("policies.yaml", "-r", "pod.yaml", "-t", "others.yaml")
    done = references.run("apply", *files, "--set", "http.data.mail=a@b", "-o", "yaml")
    assert done.exit_code == 0, done.stderr
    for text in ("team: blue", "color: red", "mail: a@b"):
        assert text in done.stdout
    done = references.run("apply", *files)
    assert done.exit_code == 1
    assert "http: there is no answer: http://teams.shop.svc/blue: services are" in done.stderr


VALUES = """
apiVersion: cli.kyverno.io/v1alpha1
kind: Values
metadata: {name: v}
policies:
- name: team
  rules:
  - name: overrideRules[2]
    values: {http.data.mail: a@b}
"""
SUITE = """
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: t}
policies: [policies.yaml]
resources: [pod.yaml]
targetResources: [others.yaml]
variables: values.yaml
results:
- {policy: team, rule: "overrideRules[2]", kind: Pod, resources: [shop/web-1], result: pass}
"""


def test_responses_of_services_can_be_given_in_a_values_file(references: Desk) -> None:
    references.write("values.yaml", VALUES)
    references.write("kyverno-test.yaml", SUITE)
    files = ("policies.yaml", "-r", "pod.yaml", "-t", "others.yaml", "-f", "values.yaml")
    done = references.run("apply", *files, "-o", "yaml")
    assert done.exit_code == 0, done.stderr
    assert "mail: a@b" in done.stdout
    assert references.run("test", ".").exit_code == 0
    everywhere = VALUES.partition("policies:")[0] + "globalValues: {http.data.mail: c@d}\n"
    references.write("values.yaml", everywhere)
    assert "mail: c@d" in references.run("apply", *files, "-o", "yaml").stdout


def test_an_owner_that_is_missing_from_the_files_is_named(references: Desk) -> None:
    done = references.run("apply", "policies.yaml", "-r", "pod.yaml")
    assert done.exit_code == 1
    assert "ReplicaSet shop/web cannot be read: replicasets.apps" in done.stderr


def test_the_content_of_a_secret_is_not_shown(references: Desk) -> None:
    rules = REFERENCES.replace("kind: ConfigMap", "kind: Secret")
    references.write("policies.yaml", rules.replace("/data/color", "/stringData/color"))
    secret = OTHERS.replace("kind: ConfigMap", "kind: Secret")
    references.write(
        "others.yaml", secret.replace("data: {color: red}", "stringData: {color: canary}")
    )
    files = ("policies.yaml", "-r", "pod.yaml", "-t", "others.yaml")
    done = references.run("apply", *files, "--set", "http.data.mail=a@b")
    assert done.exit_code == 0, done.stderr
    assert "canary" not in done.stdout + done.stderr
    assert 'color: "***"' in done.stdout


PROGRAM = """
apiVersion: policy.kcloudlabs.io/v1alpha1
kind: ClusterOverridePolicy
metadata: {name: made, annotations: {kube-retrofit.dev/objects: all}}
spec:
  resourceSelectors:
  - {apiVersion: v1, kind: ConfigMap}
  overrideRules:
  - overriders:
      cue: "object: _"
"""
PATCHES = '[{"op": "add", "path": "/metadata/labels/made", "value": "by-cue"}]'


@pytest.fixture
def programs(desk: Desk) -> str:
    """Write a policy with a CUE program, an object, and a stand-in for `cue`; return its path."""
    desk.write("policies.yaml", PROGRAM)
    desk.write("object.yaml", OBJECT)
    file = Path(desk.write("cue", f"#!/bin/sh\necho '{PATCHES}'\n"))
    file.chmod(0o700)
    return str(file)


def test_cue_programs_are_evaluated_by_the_given_command(desk: Desk, programs: str) -> None:
    files = ("policies.yaml", "-r", "object.yaml")
    done = desk.run("apply", *files, "--cue", programs)
    assert "+    made: by-cue" in done.stdout, done.stderr
    output = desk.run("explain", "policies.yaml", "--trigger", "object.yaml", "--cue", programs)
    assert "made: by-cue" in output.stdout
    desk.write(
        "kyverno-test.yaml",
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\n"
        "policies: [policies.yaml]\nresources: [object.yaml]\nresults:\n"
        "- {policy: made, rule: 'overrideRules[0]', kind: ConfigMap, resources: [settings],"
        " result: pass}\n",
    )
    assert desk.run("test", ".", "--cue", programs).exit_code == 0
    assert desk.run("test", ".").exit_code == 1


def test_a_missing_or_invalid_cue_command_is_reported_with_the_flag(
    desk: Desk, programs: str
) -> None:
    del programs
    done = desk.run("apply", "policies.yaml", "-r", "object.yaml")
    assert done.exit_code == 1
    assert "where --cue names the cue command" in " ".join(done.stderr.split())
    done = desk.run("apply", "policies.yaml", "-r", "object.yaml", "--cue", "no-such-command")
    assert done.exit_code == 2
    assert "expected the absolute path of the cue command, an executable file" in done.stderr
