"""Proxies of a login shell kept out of the way of a run's own connections: gRPC, by which
TensorFlow and JAX talk, goes through them even to the next node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy")
_EXCEPT = ("no_proxy", "NO_PROXY")
_GRPC_EXCEPT = "no_grpc_proxy"  # where it is set, gRPC does not look at no_proxy


def around_proxies(environ: Mapping[str, str], hosts: Iterable[str]) -> dict[str, str]:
    """The variables that except these hosts besides whom the user excepts; none where no proxy
    is set."""
    if not any(environ.get(name) or environ.get(name.upper()) for name in _PROXIES):
        return {}
    grpc = (_GRPC_EXCEPT,) if environ.get(_GRPC_EXCEPT) else ()
    own = [host for name in (*_EXCEPT, *grpc) for host in environ.get(name, "").split(",")]
    excepted = dict.fromkeys(filter(None, (*(host.strip() for host in own), *hosts)))
    return dict.fromkeys((*_EXCEPT, *grpc), ",".join(excepted))
