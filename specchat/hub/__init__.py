"""The hub: what a file is there, fetching it, and the shared cache it is kept in."""
