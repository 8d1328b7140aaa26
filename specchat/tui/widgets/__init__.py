"""The chat's widgets. They show; controllers act."""
