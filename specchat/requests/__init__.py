"""What a client asks an engine for, and how it hears how far the work is."""
