"""Taking the port."""

import socket

import pytest

from app.listening import CannotListen, bound_sockets


def test_the_port_is_taken_but_nobody_can_connect_yet() -> None:
    (bound,) = bound_sockets("127.0.0.1", 0)
    with bound, socket.socket() as other:
        assert bound.getsockname()[1] > 0
        with pytest.raises(ConnectionRefusedError):
            other.connect(bound.getsockname())


def test_a_name_with_several_addresses_takes_those_that_exist() -> None:
    sockets = bound_sockets("localhost", 0)
    assert {bound.getsockname()[0] for bound in sockets} <= {"127.0.0.1", "::1"}
    for bound in sockets:
        bound.close()


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(CannotListen, match=r"port .*: Address already in use; .* PORT"):
        bound_sockets("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_an_address_of_another_machine_is_told(host: str) -> None:
    with pytest.raises(CannotListen, match=host):
        bound_sockets(host, 0)
