"""Values for the elements of a foreach, and the scope of values."""

import json
import os
from collections.abc import Callable

import pytest

from tests.unit.cli.desk.conftest import Desk

Policy = Callable[..., str]

IMAGES = """
- name: pin
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate:
    foreach:
    - list: request.object.spec.containers
      context:
      - {name: image, imageRegistry: {reference: "{{ element.image }}"}}
      patchesJson6902: |-
        - op: add
          path: /spec/containers/{{ elementIndex }}/image
          value: "{{ element.image }}@{{ image.digest }}"
"""
OBJECT = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
spec: {containers: [{image: a}, {image: b}]}
"""
VALUES = """
apiVersion: cli.kyverno.io/v1alpha1
kind: Values
policies:
- name: p
  rules: [{name: pin, %s}]
"""


def images(desk: Desk, policy: Policy, values: str, rules: str = IMAGES) -> list[str]:
    desk.write("cm.yaml", OBJECT)
    desk.write("values.yaml", VALUES % values)
    done = desk.run("apply", policy(rules), "-r", "cm.yaml", "-f", "values.yaml", "-o", "json")
    assert done.exit_code == 0, done.stderr
    spec = json.loads(done.stdout)["items"][0]["spec"]
    return [item["image"] for item in spec["containers"]]


def test_each_element_of_a_foreach_has_its_value(desk: Desk, policy: Policy) -> None:
    values = "foreachValues: {image.digest: [d0, d1]}"
    assert images(desk, policy, values) == ["a@d0", "b@d1"]


def test_values_of_the_rule_are_combined_with_values_of_the_element(
    desk: Desk, policy: Policy
) -> None:
    rules = IMAGES.replace("@{{ image.digest }}", "@{{ image.digest }}@{{ image.host }}")
    values = "values: {image.host: h}, foreachValues: {image.digest: [d0, d1]}"
    assert images(desk, policy, values, rules) == ["a@d0@h", "b@d1@h"]


def test_values_keep_their_element_in_descending_order(desk: Desk, policy: Policy) -> None:
    rules = IMAGES.replace("      context:", "      order: Descending\n      context:")
    values = "foreachValues: {image.digest: [d0, d1]}"
    assert images(desk, policy, values, rules) == ["a@d0", "b@d1"]


NESTED = """
- name: pin
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate:
    foreach:
    - list: request.object.spec.containers
      foreach:
      - list: "[`1`, `2`, `3`]"
        context: [{name: image, imageRegistry: {reference: "{{ element0.image }}"}}]
        patchesJson6902: |-
          - op: add
            path: /spec/containers/{{ elementIndex0 }}/image
            value: "{{ image.digest }}-{{ elementIndex }}"
"""


def test_a_value_belongs_to_the_foreach_that_declares_its_entry(
    desk: Desk, policy: Policy
) -> None:
    values = "foreachValues: {image.digest: [d0, d1, d2]}"
    assert images(desk, policy, values, NESTED) == ["d2-2", "d2-2"]


def test_an_element_without_a_value_is_an_error(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write("values.yaml", VALUES % "foreachValues: {image.digest: [d0]}")
    done = desk.run("apply", policy(IMAGES), "-r", "cm.yaml", "-f", "values.yaml")
    assert done.exit_code == 1
    assert "foreachValues has 1 values for image, but the list has an element 1" in done.stderr


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("foreachValues: {image.digest: d0}", ".image.digest: expected a list"),
        ("foreachValues: [a]", ": expected an object of paths and values"),
        ("foreachValues: {image.a: [1], image.b: [1, 2]}", ".image: its lists differ in length"),
        ("foreachValues: {element.x: [1]}", ".element.x: it comes from the objects"),
    ],
)
def test_invalid_foreach_values_are_refused(
    desk: Desk, policy: Policy, values: str, message: str
) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write("values.yaml", VALUES % values)
    done = desk.run("apply", policy(IMAGES), "-r", "cm.yaml", "-f", "values.yaml")
    assert done.exit_code == 2
    assert f"values.yaml: policies[0].rules[0].foreachValues{message}" in done.stderr
    assert done.stderr.count("\n") == 1


SPREAD = """
- name: spread
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  context: [{name: team, apiCall: {urlPath: /api/v1/teams}}]
  mutate:
    targets: [{apiVersion: v1, kind: Secret, namespace: "*", name: "*"}]
    patchStrategicMerge:
      metadata:
        annotations:
          "{{ request.object.metadata.name }}-{{ request.object.metadata.namespace }}":
            "{{ team.name }}"
"""
TRIGGERS = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: one}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: two}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: one}}
"""
TARGETS = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: one}}
- {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: two}}
"""


def test_values_of_a_target_override_values_of_its_trigger(desk: Desk, policy: Policy) -> None:
    desk.write("triggers.yaml", TRIGGERS)
    desk.write("targets.yaml", TARGETS)
    desk.write(
        "values.yaml",
        """
        apiVersion: cli.kyverno.io/v1alpha1
        kind: Values
        globalValues: {team.name: everyone}
        policies:
        - name: p
          resources:
          - {name: a, namespace: two, values: {team.name: of-trigger}}
          - {name: b, kind: Secret, values: {team.name: of-another-kind}}
          targetResources:
          - {name: s, namespace: two, kind: Secret, values: {team.name: of-target}}
        """,
    )
    words = ["-r", "triggers.yaml", "-t", "targets.yaml", "-f", "values.yaml", "-o", "json"]
    done = desk.run("apply", policy(SPREAD), *words)
    assert done.exit_code == 0, done.stderr
    secrets = [item for item in json.loads(done.stdout)["items"] if item["kind"] == "Secret"]
    found = {item["metadata"]["namespace"]: item["metadata"]["annotations"] for item in secrets}
    assert found == {
        "one": {"a-one": "everyone", "a-two": "of-trigger", "b-one": "everyone"},
        "two": dict.fromkeys(("a-one", "a-two", "b-one"), "of-target"),
    }


SCALE = """
apiVersion: autoscaling/v1
kind: Scale
metadata: {name: web, namespace: shop}
spec: {replicas: 0}
"""
ONE_REPLICA = """
- name: one
  match: {any: [{resources: {kinds: [apps/*/Deployment/scale]}}]}
  mutate: {patchStrategicMerge: {spec: {replicas: 1}}}
"""
SUBRESOURCES = """
apiVersion: cli.kyverno.io/v1alpha1
kind: Values
subresources:
- subresource: {name: deployments/scale, kind: Scale, group: autoscaling, version: v1, verbs: null}
  parentResource: {name: deployments, kind: Deployment, group: apps, version: v1, verbs: null}
"""


def test_values_say_of_which_subresource_a_kind_is(desk: Desk, policy: Policy) -> None:
    path = policy(ONE_REPLICA)
    desk.write("scale.yaml", SCALE)
    desk.write("values.yaml", SUBRESOURCES)
    done = desk.run("apply", path, "-r", "scale.yaml", "-f", "values.yaml", "-o", "json")
    assert json.loads(done.stdout)["items"][0]["spec"] == {"replicas": 1}
    done = desk.run("explain", path, "--trigger", "scale.yaml", "-f", "values.yaml")
    assert "the rule fires" in done.stdout
    assert "pass: 0" in desk.run("apply", path, "-r", "scale.yaml").stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("name: deployments/scale", "name: scale"), "[0].subresource.name: expected RESOURCE/"),
        (("kind: Scale", "kind: 5"), "[0].subresource.kind: expected a non-empty string"),
        (("parentResource:", "parent:"), "[0].parent: unknown field 'parent', did you mean"),
        (("version: v1, verbs", "vers: v1, verbs"), "[0].subresource.vers: unknown field"),
    ],
)
def test_a_malformed_subresource_is_refused(
    desk: Desk, policy: Policy, change: tuple[str, str], said: str
) -> None:
    desk.write("scale.yaml", SCALE)
    desk.write("values.yaml", SUBRESOURCES.replace(*change, 1))
    done = desk.run("apply", policy(ONE_REPLICA), "-r", "scale.yaml", "-f", "values.yaml")
    assert done.exit_code == 2
    assert f"values.yaml: subresources{said}" in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("values.yaml", VALUES % "values: {a.b: c}" + "  resources: [{name: c, namespace: 5}]\n",
         "values.yaml: policies[0].resources[0].namespace: expected a string"),
        ("values.yaml", VALUES % "values: {a.b: c}" + "  targetResources: [{name: c, kind: 5}]\n",
         "values.yaml: policies[0].targetResources[0].kind: expected a string"),
        ("user.yaml", "{apiVersion: cli.kyverno.io/v1, kind: UserInfo, userInfo: {username: 5}}",
         "user.yaml: userInfo.username: expected a string"),
        ("user.yaml", "{apiVersion: cli.kyverno.io/v1, kind: UserInfo, userInfo: {uid: 5}}",
         "user.yaml: userInfo.uid: expected a string"),
    ],
)  # fmt: skip
def test_a_number_in_place_of_a_name_is_refused(
    desk: Desk, policy: Policy, name: str, text: str, said: str
) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write(name, text)
    flag = "-f" if name == "values.yaml" else "-u"
    done = desk.run("apply", policy(ONE_REPLICA), "-r", "cm.yaml", flag, name)
    assert (done.exit_code, done.stderr) == (2, f"Error: {said}\n")


OPERATION = """
- name: label
  match: {any: [{resources: {kinds: [ConfigMap]}}]}
  mutate: {patchStrategicMerge: {metadata: {labels: {by: "{{ request.operation }}"}}}}
"""


def test_an_operation_that_does_not_exist_is_refused(desk: Desk, policy: Policy) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write(
        "values.yaml",
        """
        apiVersion: cli.kyverno.io/v1alpha1
        kind: Values
        globalValues: {request.operation: update}
        """,
    )
    words = ["apply", policy(OPERATION), "-r", "cm.yaml"]
    for given in (["-f", "values.yaml"], ["--set", "request.operation=update"]):
        done = desk.run(*words, *given)
        assert done.exit_code == 2
        assert "expected one of CREATE, UPDATE, DELETE, CONNECT, found 'update'" in done.stderr


FIELDS = """
- name: label
  match: {any: [{resources: {kinds: [ConfigMap], selector: {matchLabels: {env: prod}}}}]}
  mutate:
    patchStrategicMerge:
      metadata: {labels: {+(size): large, from: "{{ request.object.data.a }}"}}
"""


def test_values_for_fields_of_the_trigger_change_the_trigger_itself(
    desk: Desk, policy: Policy
) -> None:
    desk.write("cm.yaml", OBJECT)
    desk.write(
        "values.yaml",
        """
        apiVersion: cli.kyverno.io/v1alpha1
        kind: Values
        globalValues: {request.object.data: {a: b}}
        policies:
        - name: p
          resources:
          - name: settings
            values: {request.object.metadata.labels: {env: prod, size: small}}
        """,
    )
    words = ["apply", policy(FIELDS), "-r", "cm.yaml", "-f", "values.yaml", "-o", "json"]
    (changed,) = json.loads(desk.run(*words).stdout)["items"]
    assert changed["metadata"]["labels"] == {"env": "prod", "size": "small", "from": "b"}
    assert changed["data"] == {"a": "b"}


def test_a_byte_of_a_value_that_is_no_character_is_written_out_as_json(
    desk: Desk, policy: Policy
) -> None:
    rule = """
    - name: r
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      context: [{name: s, configMap: {name: s, namespace: default}}]
      mutate: {patchStrategicMerge: {metadata: {labels: {mail: "{{ s.data.mail }}"}}}}
    """
    desk.write("cm.yaml", OBJECT)
    given = [policy(rule), "--set", os.fsdecode(b"s.data.mail=caf\xe9"), "-o"]
    objects = desk.run("apply", *given, "json", "-r", "cm.yaml").stdout
    assert json.loads(objects)["items"][0]["metadata"]["labels"] == {"mail": r"caf\udce9"}
    (change,) = json.loads(desk.run("apply", *given, "patch", "-r", "cm.yaml").stdout)
    assert change["patch"][0]["value"] == {"mail": r"caf\udce9"}
    explained = desk.run("explain", *given, "json", "--trigger", "cm.yaml")
    assert (explained.exit_code, len(json.loads(explained.stdout))) == (0, 1)
