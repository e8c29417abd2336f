"""Sockets that listen for callers of IPv4 and of IPv6."""

import errno
import socket

import pytest

from reconciler.config import AdmissionSettings, ControllerSettings, build
from reconciler.errors import InvalidSetting
from reconciler.observe.listening import bind


def greeted(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=5.0).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("kind", [AdmissionSettings, ControllerSettings])
@pytest.mark.parametrize("caller", ["127.0.0.1", "::1"])
def test_by_default_callers_of_both_families_are_answered(kind, caller):
    if caller == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with bind(build(kind, {}).bind_address, 0, flag="--port") as listener:
        assert greeted(caller, listener.getsockname()[1])


def test_an_address_of_ipv4_is_not_reached_by_ipv6():
    with bind("127.0.0.1", 0, flag="--port") as listener:
        port = listener.getsockname()[1]
        assert (greeted("127.0.0.1", port), greeted("::1", port)) == (True, False)


def test_an_address_that_is_none_is_refused_in_words():
    with pytest.raises(InvalidSetting) as refused:
        bind("300.1.1.1", 8080, flag="--port")
    assert str(refused.value).startswith("cannot listen on 300.1.1.1:8080: ")
    assert "Errno" not in str(refused.value)
    assert "check the address, and --port" in str(refused.value)


def test_a_machine_without_ipv6_listens_on_every_address_of_ipv4(monkeypatch):
    opened = socket.socket

    def without_ipv6(family, *rest):
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return opened(family, *rest)

    monkeypatch.setattr(socket, "socket", without_ipv6)
    listener = bind("::", 0, flag="--port")
    monkeypatch.undo()
    with listener:
        assert listener.getsockname()[0] == "0.0.0.0"
        assert greeted("127.0.0.1", listener.getsockname()[1])
