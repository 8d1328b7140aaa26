"""The chat's widgets: they display state, and leave actions to the controllers."""
