"""The requests of clients to engines, and the updates and progress that come back."""
