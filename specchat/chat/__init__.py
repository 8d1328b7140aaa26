"""Conversations: their tree, their store, export."""
