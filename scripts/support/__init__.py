"""What scripts share with each other and with the tests; it imports neither."""
