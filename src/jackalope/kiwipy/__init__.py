"""A kiwipy communicator over Jackalope. Needs `jackalope[kiwipy]`."""
