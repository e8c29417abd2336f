"""YAML read into JSON values as sigs.k8s.io/yaml does it, over go-yaml 2.

It is what a value of a policy becomes whose original is a Go program: `y` and `on` are true, also
as keys; 017 is fifteen; a repeated key wins; a merge counts where it stands; what follows the
first document, or a complete value in brackets or quotes, is ignored.
"""

from reconciler.languages.goyaml.faults import YAMLError
from reconciler.languages.goyaml.reading import MAX_DEPTH, MAX_VALUES, parse

__all__ = ["MAX_DEPTH", "MAX_VALUES", "YAMLError", "parse"]
