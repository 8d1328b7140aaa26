"""A hub with TLS, and no proxies of this machine."""

from network_fixtures import authority, no_proxies, tls_hub

__all__ = ["authority", "no_proxies", "tls_hub"]
