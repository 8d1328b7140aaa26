"""What is run by hand from a copy of the repository; README.md says what there is."""
