"""The sockets of the service, taken before anything slow is done, so that a port in use is told at once."""

import errno
import socket
from collections.abc import Sequence

TAKEN = (errno.EADDRINUSE, errno.EACCES)
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class CannotListen(Exception):
    """The address is not to be had; the message says why."""


def bound_sockets(host: str, port: int) -> Sequence[socket.socket]:
    """Return a bound socket for each address of `host`; nobody can connect before the server listens. Raises CannotListen."""
    taken: list[socket.socket] = []
    reason: OSError | None = None
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
            try:
                bound = socket.socket(family, kind, protocol)
                taken.append(bound)
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                bound.bind(address)
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
                reason = error  # `localhost` has an IPv6 address on machines without IPv6
                taken.pop().close()
    except OSError as error:
        reason = error
        for bound in taken:
            bound.close()
        taken = []
    if not taken:
        instead = "; another port is taken with --port or PORT" if reason and reason.errno in TAKEN else ""
        raise CannotListen(f"cannot listen on {host} port {port}: {reason.strerror if reason else 'no such address'}{instead}") from reason
    return taken
