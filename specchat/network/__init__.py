"""Connections to other machines: proxies, certificates, and addresses of this machine."""
