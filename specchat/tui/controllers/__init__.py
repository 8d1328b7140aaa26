"""What the chat does. Nothing here imports a widget."""
