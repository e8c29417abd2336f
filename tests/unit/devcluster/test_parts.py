"""Ports of the local control plane and programs."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from devcluster.parts import HOST, free_ports

_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_ports_are_free_and_differ() -> None:
    ports = list(free_ports(20))
    assert len(set(ports)) == 20
    with ExitStack() as stack:
        for port in ports:
            stack.enter_context(socket.socket()).bind((HOST, port))


def test_no_outgoing_connection_takes_the_port_of_a_program_that_starts_again() -> None:
    if not _OUTGOING.exists():
        pytest.skip("this system does not say which ports outgoing connections get")
    first, last = map(int, _OUTGOING.read_text().split())
    assert not [port for port in free_ports(100) if first <= port <= last]
