"""Parses YAML into JSON values as sigs.k8s.io/yaml does, with go-yaml 2.

It is for values of policies whose original is a Go program: `y` and `on` are true, also as keys;
017 is fifteen; the last of repeated keys wins; a merge takes effect at its position; anything
after the first document, or after a complete value in brackets or quotes, is ignored.
"""

from reconciler.languages.goyaml.faults import YAMLError
from reconciler.languages.goyaml.reading import parse

__all__ = ["YAMLError", "parse"]
