"""Policies of kinitiras at the desk."""

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
metadata: {name: settings}
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


def test_apply_ends_well_where_nothing_is_refused(files: Desk) -> None:
    files.write("object.yaml", OBJECT.replace("large", "tiny"))
    done = files.run("apply", "policies.yaml", "-r", "object.yaml")
    assert done.exit_code == 0
    assert "pass: 1, fail: 0, warn: 0, error: 0, skip: 1" in done.stderr


def test_lint_names_the_place_in_the_file(files: Desk) -> None:
    files.write("policies.yaml", POLICIES.replace("cond: Equal", "cond: Like"))
    done = files.run("lint", "policies.yaml")
    assert done.exit_code == 1
    assert "expected one of Equal" in done.stdout
    files.write("policies.yaml", POLICIES)
    assert files.run("lint", "policies.yaml").exit_code == 0
