"""Changes of policies and namespaces as the watches bring them."""

from admission.following import NamespaceLabels, PolicyFeed
from reconciler.observe.metrics import create_metrics
from reconciler.services.policies import PolicyIndex


def test_policies_come_change_and_go(make):
    metrics, index = create_metrics(), PolicyIndex()
    feed = PolicyFeed(index=index, metrics=metrics)

    def counted(state):
        return metrics.registry.get_sample_value("retrofit_policies", {"state": state})

    feed.take("ADDED", make.policy("one", uid="1"))
    feed.take("ADDED", make.policy("two", namespace="a", uid="2"))
    assert [item.key for item in index.policies()] == ["a/two", "one"]
    broken = make.policy("one", uid="1")
    broken["metadata"]["generation"] = 4
    broken["spec"]["rules"][0]["match"] = {}
    feed.take("MODIFIED", broken)
    assert [item.key for item in index.policies()] == ["a/two"]
    assert (counted("ready"), counted("invalid")) == (1, 1)
    feed.take("DELETED", {"metadata": {"name": "one", "uid": "1"}})
    feed.take("DELETED", {"metadata": {"name": "two", "namespace": "a", "uid": "2"}})
    assert (counted("ready"), counted("invalid")) == (0, 0)


def test_labels_of_namespaces_follow():
    labels = NamespaceLabels()
    labels.take("ADDED", {"metadata": {"name": "a", "labels": {"tier": "gold"}}})
    labels.take("ADDED", {"metadata": {"name": "b"}})
    assert labels.by_name == {"a": {"tier": "gold"}, "b": {}}
    labels.take("MODIFIED", {"metadata": {"name": "a"}})
    labels.take("DELETED", {"metadata": {"name": "b"}})
    assert labels.by_name == {"a": {}}
