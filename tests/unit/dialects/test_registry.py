"""The registry of policy languages, which imports a language only for its policies."""

import subprocess
import sys


def test_a_language_is_imported_only_when_a_policy_uses_it() -> None:
    script = (
        "import sys\nfrom reconciler.dialects.registry import KNOWN_KINDS, compile_policy\n"
        "names = {'gval', 'gotemplate'}\n"
        "loaded = lambda: sorted(name for name in names if f'reconciler.languages.{name}' in"
        " sys.modules)\n"
        "print(loaded())\n"
        "spec = {'type': 'Reject', 'match': [{'select': '$.kind'}], 'rejectMessage': 'no'}\n"
        "compile_policy({'apiVersion': 'api.kubemod.io/v1beta1', 'kind': 'ModRule',"
        " 'metadata': {'name': 'a', 'namespace': 'b'}, 'spec': spec})\n"
        "print(loaded())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "['gotemplate', 'gval']"]
